// What meshes and correspondences share: viewers, a color scale of errors, and the choice of a scene and of one of its samples.
class Scenes {
  constructor(prefix, scenes, surface, unit, paper, maps) {
    Object.assign(this, { scenes, control: (name) => byId(`${prefix}-${name}`) });
    this.stage = new Stage(this.control('views'), surface);
    this.scale = new ErrorScale(prefix, unit, paper, maps, (look) => { this.stage.look = look; this.stage.redraw(); });
    options(this.control('scene'), scenes.map((scene) => scene.title));
    this.control('scene').addEventListener('change', () => this.enter());
    this.control('sample').addEventListener('change', () => this.show());
    for (const [name, by] of [['before', -1], ['next', 1]]) this.control(name).addEventListener('click', () => this.step(by));
    this.control('controls').addEventListener('submit', (event) => event.preventDefault());
  }

  get scene() { return this.scenes[this.control('scene').selectedIndex]; }

  get sample() { return this.control('sample').selectedIndex; }

  offerSamples() {
    const { samples } = this.scene;
    options(this.control('sample'), samples);
    this.control('before').hidden = this.control('next').hidden = samples.length < 2;
  }

  step(by) {
    const select = this.control('sample'), count = select.length;
    select.selectedIndex = (select.selectedIndex + by + count) % count;
    return this.show();
  }

  // Replaces the viewers by one for the input or target, and one for each method.
  cast(title, methods) {
    this.stage.cast([{ title, skip: 'input' }, ...methods.map(({ name, skip }) => ({ title: name, skip }))]);
  }
}
