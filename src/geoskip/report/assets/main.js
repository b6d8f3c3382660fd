// Brings the page to life: each section when it is near the screen.
function main() {
  const data = JSON.parse(byId('data').textContent);
  document.documentElement.classList.add('js');
  setUpTheme();
  document.querySelectorAll('table.sortable').forEach(setUpTable);
  const surface = data.scenes.length || data.matchings.length ? Surface.open(data.maps) : null;
  if (surface) {
    if (data.scenes.length) new Meshes(data.scenes, surface, data.maps).enter();
    if (data.matchings.length) whenNear(byId('bodies'), () => new Matches(data.matchings, surface, data.maps).enter());
  } else {
    for (const id of ['mesh', 'body']) {
      byId(`${id}-controls`).hidden = byId(`${id}-scale`).hidden = true;
      byId(`${id}-status`).textContent = 'This browser has no WebGL 2: a still picture is shown.';
    }
  }
  if (data.galleries.length) whenNear(byId('graphs'), () => new Graphs(data.galleries).show());
  if (data.charts.length) {
    const holder = byId('chart-list');
    whenNear(byId('curves'), () => holder.append(...data.charts.map((chart) => new Chart(chart).figure)));
  }
}
main();
