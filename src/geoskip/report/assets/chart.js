// An interactive chart: lines to show or hide, values under the pointer, zoom along x.
class Chart {
  constructor(chart) {
    Object.assign(this, { chart, hidden: new Set(), zoom: null });
    this.marks = [...new Set(chart.series.map((series) => series.mark))];
    this.groups = [...new Set(chart.series.map((series) => series.group))];
    this.group = this.groups.length > 1 && chart.series.length > 8 ? chart.first : null;
    this.plot = make('div', { class: 'plot' });
    this.legend = make('div', { class: 'legend', role: 'group', 'aria-label': 'Lines' });
    this.status = make('p', { class: 'status', role: 'status', 'aria-live': 'polite' });
    this.reset = make('button', { type: 'button', disabled: true, onclick: () => this.zoomTo(null) }, 'Reset zoom');
    const values = make('details', { class: 'values', ontoggle: () => values.open && this.tabulate(values) }, make('summary', {}, 'Show as table'));
    this.figure = make('figure', { class: 'chart', id: chart.key }, make('h3', {}, chart.name, make('small', {}, chart.table)), make('p', {}, chart.text),
      this.plot, this.legend, make('div', { class: 'tools' }, this.chooser(), this.reset, this.status), values);
    this.reading = new Reading(this.plot, this.status);
    this.render = once(() => this.paint());
    new ResizeObserver(this.render).observe(this.plot);
    this.list();
  }

  chooser() {
    if (this.group === null) return null;
    const names = [...this.groups, 'all'];
    const select = make('select', { 'aria-label': 'Operator', onchange: () => {
      this.group = select.selectedIndex < this.groups.length ? this.groups[select.selectedIndex] : '';
      this.list();
      this.render();
    } }, ...names.map((name) => make('option', { selected: name === this.group }, name)));
    return select;
  }

  get offered() { return this.chart.series.filter((series) => !this.group || series.group === this.group); }

  get shown() { return this.offered.filter((series) => !this.hidden.has(series.name)); }

  list() {
    this.legend.replaceChildren(...this.offered.map((series) => {
      const line = draw('path', { d: 'M0 6H26', class: 'line', 'stroke-dasharray': dashOf(series) });
      line.style.stroke = colorOf(series);
      const sample = draw('svg', { viewBox: '0 0 26 12', 'aria-hidden': 'true' }, line);
      if (isMarked(this.chart, this.offered)) sample.append(draw('g', { transform: 'translate(13 6)' }, markOf(series, this.marks)));
      const button = make('button', { type: 'button', 'aria-pressed': String(!this.hidden.has(series.name)) }, sample, series.name);
      button.addEventListener('click', () => {
        if (!this.hidden.delete(series.name)) this.hidden.add(series.name);
        button.setAttribute('aria-pressed', String(!this.hidden.has(series.name)));
        this.render();
      });
      return button;
    }));
  }

  paint() {
    const width = this.plot.clientWidth;
    if (!width) return;
    const box = { width, height: Math.round(Math.max(220, Math.min(340, 0.56 * width))), left: 58, right: 12, top: 8, bottom: 42 };
    const { chart } = this, focused = document.activeElement === this.svg;
    const ranges = rangesOf(this.shown, chart.log_y, this.zoom);
    // For marks side by side at the ends.
    const room = chart.kind === 'points' && !this.zoom ? 34 / (width - box.left - box.right) * (ranges.x[1] - ranges.x[0]) : 0;
    const x = scaleOf([ranges.x[0] - room, ranges.x[1] + room], [box.left, width - box.right], false);
    const y = scaleOf(ranges.y, [box.height - box.bottom, box.top], chart.log_y);
    const svg = draw('svg', { viewBox: `0 0 ${width} ${box.height}`, width, height: box.height, tabindex: 0, role: 'img', 'aria-label':
      `${chart.title}. ${chart.text} Use the arrow keys to read values, plus and minus to zoom.` });
    axes(svg, chart, box, x, y);
    const clip = `clip-${chart.key}`, inner = draw('g', { 'clip-path': `url(#${clip})` });
    svg.append(draw('clipPath', { id: clip }, draw('rect', { x: box.left - 5, y: 0, width: width - box.left - box.right + 10, height: box.height - box.bottom + 5 })), inner);
    const places = chart.kind === 'points' ? sideBySide(this.shown, x) : (series, i) => x(series.points[i][0]);
    for (const series of this.shown) plotSeries(inner, chart, series, this.marks, places, y, isMarked(chart, this.offered));
    this.svg?.remove();
    this.svg = svg;
    this.frame = { x, y, box };
    this.plot.prepend(svg);
    this.listen(svg, x, box);
    if (focused) svg.focus();
  }

  read(at) { this.reading.show(this.svg, this.chart, this.shown, at, this.frame); }

  zoomTo(range) {
    this.zoom = range;
    this.reset.disabled = range === null;
    this.reading.hide();
    this.render();
  }

  listen(svg, x, box) {
    let from = null;
    const brush = draw('rect', { class: 'brush', y: box.top, height: box.height - box.top - box.bottom, width: 0 });
    const at = (event) => Math.max(box.left, Math.min(box.width - box.right, event.clientX - svg.getBoundingClientRect().left));
    svg.append(brush);
    svg.addEventListener('pointerdown', (event) => { from = at(event); svg.setPointerCapture(event.pointerId); });
    svg.addEventListener('pointermove', (event) => {
      const now = at(event);
      if (from === null) return this.read(x.back(now));
      brush.setAttribute('x', Math.min(from, now));
      return brush.setAttribute('width', Math.abs(now - from));
    });
    svg.addEventListener('pointerup', (event) => {
      if (from === null) return;
      const ends = [from, at(event)].sort((a, b) => a - b).map(x.back), wide = Math.abs(at(event) - from) > 8;
      from = null;
      brush.setAttribute('width', 0);
      if (wide) this.zoomTo(ends);
      else this.read(ends[0]);
    });
    svg.addEventListener('pointercancel', () => { from = null; brush.setAttribute('width', 0); });
    svg.addEventListener('pointerleave', (event) => { if (from === null && event.pointerType === 'mouse') this.reading.hide(); });
    svg.addEventListener('dblclick', () => this.zoomTo(null));
    svg.addEventListener('keydown', (event) => this.key(event, x, box));
  }

  key(event, x, box) {
    const [low, high] = [x.back(box.left), x.back(box.width - box.right)], places = [...new Set(this.shown.flatMap((s) => s.points.map(([px]) => px)))]
      .filter((px) => px >= low && px <= high).sort((a, b) => a - b);
    const middle = this.reading.x ?? (low + high) / 2, now = places.indexOf(this.reading.x);
    const zoom = (factor) => this.zoomTo([Math.max(middle - (high - low) * factor, places[0]), Math.min(middle + (high - low) * factor, places.at(-1))]);
    const step = (by) => this.read(places[now < 0 ? (by > 0 ? 0 : places.length - 1) : Math.max(0, Math.min(places.length - 1, now + by))]);
    const actions = { ArrowRight: () => step(1), ArrowLeft: () => step(-1), '+': () => zoom(0.25), '=': () => zoom(0.25), '-': () => zoom(1), 0: () => this.zoomTo(null), Escape: () => this.reading.hide() };
    if (!actions[event.key] || !places.length || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    actions[event.key]();
  }

  tabulate(details) {
    const series = this.offered, places = [...new Set(series.flatMap((s) => s.points.map(([x]) => x)))].sort((a, b) => a - b);
    const maps = series.map((s) => new Map(s.points.map(([x], i) => [x, valueText(s, i, this.chart.decimals)])));
    const head = make('tr', {}, make('th', { scope: 'col' }, this.chart.x), ...series.map((s) => make('th', { scope: 'col', class: 'number' }, s.name)));
    const rows = places.map((x) => make('tr', {}, make('th', { scope: 'row' }, x.toLocaleString('en')),
      ...maps.map((map) => make('td', { class: 'number' }, map.get(x) ?? '–'))));
    const table = make('table', {}, make('caption', {}, this.chart.y), make('thead', {}, head), make('tbody', {}, ...rows));
    details.replaceChildren(details.firstElementChild, make('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': this.chart.title }, table));
  }
}
