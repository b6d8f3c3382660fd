// Graphs as cards: the graph, its label, and the prediction of each method.
class Graphs {
  constructor(galleries) {
    this.galleries = galleries;
    options(byId('graph-set'), galleries.map((gallery) => gallery.title));
    byId('graph-controls').addEventListener('change', () => this.show());
    byId('graph-controls').addEventListener('submit', (event) => event.preventDefault());
  }

  show() {
    const gallery = this.galleries[byId('graph-set').selectedIndex];
    const wanted = byId('graph-controls').querySelector('input:checked').value;
    const misread = (n) => gallery.methods.some((method) => method.predicted[n] !== gallery.graphs[n].true);
    const chosen = gallery.graphs.map((_, n) => n).filter((n) => wanted === 'all' || misread(n) === (wanted === 'wrong'));
    byId('graph-list').replaceChildren(...chosen.map((n) => this.card(gallery, n)));
    const scores = gallery.methods.map(({ name, predicted, test }) =>
      `${name} ${chosen.filter((n) => predicted[n] === gallery.graphs[n].true).length}${test && ` (test set: ${test})`}`);
    byId('graph-status').textContent = `${chosen.length} of ${gallery.graphs.length} graphs. Correct: ${scores.join(', ')}.`;
  }

  card(gallery, n) {
    const graph = gallery.graphs[n], name = gallery.classes[graph.true];
    const picture = draw('svg', { viewBox: '0 0 320 320', role: 'img', 'aria-label': `Graph labeled ${name}` });
    drawGraph(graph, picture);
    const rows = gallery.methods.map((method) => {
      const right = method.predicted[n] === graph.true;
      return make('tr', {}, make('th', { scope: 'row', title: method.name }, method.name),
        make('td', { class: right ? 'yes' : 'no' }, `${gallery.classes[method.predicted[n]]} ${right ? '✓' : '✗'}`));
    });
    const table = make('table', {}, make('caption', { class: 'only' }, `Predictions for a graph labeled ${name}`), make('tbody', {}, ...rows));
    const file = graph.name ? [make('p', { class: 'file' }, graph.name)] : [];
    return make('li', {}, picture, make('h3', {}, `Label: ${name}`), ...file, table);
  }
}

// Lines between neighbors; a dot for each vertex, larger and darker where its feature is larger.
async function drawGraph(graph, picture) {
  const [pos, bright, edges] = await Promise.all([whole(graph.pos), whole(graph.bright), whole(graph.edges)]);
  const at = (i) => [2 * i, 2 * i + 1].map((k) => Math.round(16 + 288 * pos[k] / 65535));
  const lines = [];
  for (let e = 0; e < edges.length; e += 2) lines.push(`M${at(edges[e])}L${at(edges[e + 1])}`);
  const dots = [...bright].map((value, i) => {
    const part = value / 255, [cx, cy] = at(i), dot = draw('circle', { cx, cy, r: (4 + 8 * part).toFixed(1) });
    dot.style.fill = `color-mix(in oklab,var(--ink) ${Math.round(100 * part)}%,var(--rule))`;
    return dot;
  });
  picture.replaceChildren(draw('path', { d: lines.join('') }), ...dots);
}
