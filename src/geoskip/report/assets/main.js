// Starts the page. Sections are filled when they come near the screen, and all at once when a link jumps into the page.
function main() {
  const data = JSON.parse(byId('data').textContent), fill = [];
  document.documentElement.classList.add('js');
  setUpTheme();
  document.querySelectorAll('table.sortable').forEach(setUpTable);
  const surface = data.scenes.length || data.matchings.length ? Surface.open(data.maps) : null;
  if (surface) {
    if (data.scenes.length) new Meshes(data.scenes, surface, data.maps).enter();
    if (data.matchings.length) fill.push(whenNear(byId('bodies'), () => new Matches(data.matchings, surface, data.maps).enter()));
  } else {
    for (const id of ['mesh', 'body']) {
      byId(`${id}-controls`).hidden = byId(`${id}-scale`).hidden = true;
      byId(`${id}-status`).textContent = 'This browser has no WebGL 2, so a still picture is shown.';
    }
  }
  if (data.galleries.length) fill.push(whenNear(byId('graphs'), () => new Graphs(data.galleries).show()));
  if (data.charts.length) {
    fill.push(whenNear(byId('curves'), () => {
      const charts = data.charts.map((chart) => new Chart(chart));
      byId('chart-list').append(...charts.map((chart) => chart.figure));
      charts.forEach((chart) => chart.paint());
    }));
  }
  setUpLinks(() => fill.forEach((act) => act()));
}

// A link lands at its target and stays there while the page above it is still growing, until the reader moves on. Jumps are instant: a smooth
// scroll ends where the target was when it began.
function setUpLinks(fill) {
  let target = null;
  const jump = () => {
    if (location.hash.length < 2) return;
    fill();
    target = byId(location.hash.slice(1));
    target?.scrollIntoView();
  };
  new ResizeObserver(() => target?.scrollIntoView()).observe(byId('main'));
  for (const type of ['wheel', 'touchstart', 'pointerdown', 'keydown']) window.addEventListener(type, () => { target = null; }, { passive: true });
  window.addEventListener('hashchange', jump);
  jump();
}
main();
