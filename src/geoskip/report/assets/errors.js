// The color scale of errors: its end and its color map.
class ErrorScale {
  constructor(prefix, unit, paper, maps, changed) {
    Object.assign(this, { unit, paper, maps, changed, high: paper, map: 'ember' });
    this.part = (name) => byId(`${prefix}-${name}`);
    this.bar = this.part('scale').querySelector('canvas');
    this.slider = this.part('saturation');
    options(this.part('map'), Object.keys(maps));
    this.part('map').addEventListener('change', () => { this.map = Object.keys(maps)[this.part('map').selectedIndex]; this.show(); });
    this.slider.addEventListener('input', () => { this.high = this.at(Number(this.slider.value)); this.show(); });
    this.part('paper').addEventListener('click', () => this.set(this.paper));
  }

  // The slider's 100 steps go from a hundredth to four times its base, on a logarithmic scale.
  at(step) { return Number((this.base * 0.01 * 400 ** (step / 100)).toPrecision(2)); }

  // The base is the paper's end, or the end of a larger scale.
  set(high) {
    this.high = high;
    this.base = Math.max(high, this.paper);
    this.slider.value = String(Math.round(100 * Math.log(high / this.base * 100) / Math.log(400)));
    this.show();
  }

  show() {
    const context = this.bar.getContext('2d'), pixels = context.createImageData(256, 1), table = this.maps[this.map];
    for (let i = 0; i < 256; i++) pixels.data.set([table[3 * i], table[3 * i + 1], table[3 * i + 2], 255], 4 * i);
    context.putImageData(pixels, 0, 0);
    this.part('end').textContent = `${short(this.high)} ${this.unit}`;
    this.slider.setAttribute('aria-valuetext', `${short(this.high)} ${this.unit}`);
    this.changed({ high: this.high, map: this.map });
  }
}
