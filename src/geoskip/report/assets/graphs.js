// Superpixel graphs as cards: the graph, its label, and the prediction of each method.
class Graphs {
  constructor(galleries) {
    this.galleries = galleries;
    options(byId('graph-set'), galleries.map((gallery) => gallery.title));
    byId('graph-controls').addEventListener('change', () => this.show());
    byId('graph-controls').addEventListener('submit', (event) => event.preventDefault());
    document.addEventListener('theme', () => this.paint());
  }

  show() {
    const gallery = this.galleries[byId('graph-set').selectedIndex];
    const wanted = byId('graph-controls').querySelector('input:checked').value;
    const misread = (n) => gallery.methods.some((method) => method.predicted[n] !== gallery.graphs[n].true);
    const chosen = gallery.graphs.map((_, n) => n).filter((n) => wanted === 'all' || misread(n) === (wanted === 'wrong'));
    this.cards = chosen.map((n) => this.card(gallery, n));
    byId('graph-list').replaceChildren(...this.cards.map(({ card }) => card));
    const scores = gallery.methods.map(({ name, predicted, test }) =>
      `${name} ${chosen.filter((n) => predicted[n] === gallery.graphs[n].true).length}${test && ` (test set: ${test})`}`);
    byId('graph-status').textContent = `${chosen.length} of ${gallery.graphs.length} graphs. Correct: ${scores.join(', ')}.`;
    this.paint();
  }

  card(gallery, n) {
    const graph = gallery.graphs[n], name = gallery.classes[graph.true];
    const canvas = make('canvas', { width: 320, height: 320, role: 'img', 'aria-label': `Superpixel graph labeled ${name}` });
    const rows = gallery.methods.map((method) => {
      const right = method.predicted[n] === graph.true;
      return make('tr', {}, make('th', { scope: 'row', title: method.name }, method.name),
        make('td', { class: right ? 'yes' : 'no' }, `${gallery.classes[method.predicted[n]]} ${right ? '✓' : '✗'}`));
    });
    const table = make('table', {}, make('caption', { class: 'only' }, `Predictions for a graph labeled ${name}`), make('tbody', {}, ...rows));
    return { graph, canvas, card: make('li', {}, canvas, make('h3', {}, `Label: ${name}`), table) };
  }

  paint() { return Promise.all((this.cards ?? []).map(({ graph, canvas }) => paintGraph(graph, canvas))); }
}

async function paintGraph(graph, canvas) {
  const [pos, bright, edges] = await Promise.all([whole(graph.pos), whole(graph.bright), whole(graph.edges)]);
  const context = canvas.getContext('2d'), side = canvas.width, style = getComputedStyle(document.documentElement);
  const x = (i) => (0.05 + 0.9 * pos[2 * i] / 65535) * side, y = (i) => (0.05 + 0.9 * pos[2 * i + 1] / 65535) * side;
  context.clearRect(0, 0, side, side);
  context.strokeStyle = style.getPropertyValue('--soft');
  context.globalAlpha = 0.16;
  context.lineWidth = 1;
  context.beginPath();
  for (let e = 0; e < edges.length; e += 2) { context.moveTo(x(edges[e]), y(edges[e])); context.lineTo(x(edges[e + 1]), y(edges[e + 1])); }
  context.stroke();
  context.globalAlpha = 1;
  for (let i = 0; i < bright.length; i++) {
    const part = bright[i] / 255;
    context.beginPath();
    context.arc(x(i), y(i), 4 + 8 * part, 0, 2 * Math.PI);
    context.fillStyle = `color-mix(in oklab, ${style.getPropertyValue('--ink')} ${Math.round(100 * part)}%, ${style.getPropertyValue('--rule')})`;
    context.fill();
  }
}
