// Draws a chart as SVG: axes, bands, lines, markers.
const MARKS = ['M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z', 'M-3.6-3.6h7.2v7.2h-7.2Z', 'M0-4.6L4.4 3.4H-4.4Z', 'M0-5L4.4 0L0 5L-4.4 0Z',
  'M0 4.6L4.4-3.4H-4.4Z', 'M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3Z', 'M0-2.2L2.4-4.6L4.6-2.4L2.2 0L4.6 2.4L2.4 4.6L0 2.2L-2.4 4.6L-4.6 2.4L-2.2 0L-4.6-2.4L-2.4-4.6Z',
  'M-4.6 0L3.4-4.4V4.4Z', 'M4.6 0L-3.4-4.4V4.4Z', 'M0-5.2L1.5-1.6L5.2-1.6L2.2.8L3.3 4.6L0 2.3L-3.3 4.6L-2.2.8L-5.2-1.6L-1.5-1.6Z'];
const DASHES = { '': null, '+': '7 3', '†': '2 3' };

const dashOf = (series) => (series.paper ? '1 3' : DASHES[series.variant] ?? null);
const colorOf = (series) => `var(--${series.color})`;

function markOf(series, marks) {
  const path = draw('path', { d: MARKS[marks.indexOf(series.mark) % MARKS.length] ?? MARKS[0], class: 'mark' });
  path.style.stroke = colorOf(series);
  path.style.fill = series.paper ? 'var(--card)' : colorOf(series);
  return path;
}

// The ranges of x and y that contain the series, or the part of them between the ends of a zoom.
function rangesOf(series, log, zoom) {
  let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const { points, low: lows, high: highs } of series) {
    points.forEach(([x, y], i) => {
      if (zoom && (x < zoom[0] || x > zoom[1])) return;
      [left, right] = [Math.min(left, x), Math.max(right, x)];
      for (const value of [y, lows[i] ?? y, highs[i] ?? y]) {
        if (!log || value > 0) [low, high] = [Math.min(low, value), Math.max(high, value)];
      }
    });
  }
  if (low > high) [left, right, low, high] = [0, 1, log ? 0.1 : 0, 1];
  if (left === right) [left, right] = [left - 1, right + 1];
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - Math.abs(low || 1) / 4, high + Math.abs(high || 1) / 4];
  const room = log ? 0 : 0.06 * (high - low), factor = log ? (high / low) ** 0.05 : 1;
  return { x: zoom ?? [left, right], y: [low / factor - room, high * factor + room] };
}

function axes(svg, chart, box, x, y) {
  const bottom = box.height - box.bottom, right = box.width - box.right;
  for (const tick of y.ticks(5)) {
    svg.append(draw('line', { class: 'grid', x1: box.left, x2: right, y1: y(tick), y2: y(tick) }),
      draw('text', { x: box.left - 8, y: y(tick) + 4, 'text-anchor': 'end' }, tickText(tick)));
  }
  // Epochs and kernel sizes are whole numbers.
  const whole = chart.series.every(({ points }) => points.every(([value]) => Number.isInteger(value)));
  for (const tick of x.ticks(box.width / 90)) {
    if (whole && !Number.isInteger(tick)) continue;
    svg.append(draw('line', { class: 'axis', x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 5 }),
      draw('text', { x: x(tick), y: bottom + 19, 'text-anchor': 'middle' }, tickText(tick)));
  }
  svg.append(draw('line', { class: 'axis', x1: box.left, x2: right, y1: bottom, y2: bottom }),
    draw('text', { x: (box.left + right) / 2, y: box.height - 4, 'text-anchor': 'middle' }, chart.x),
    draw('text', { x: -(bottom + box.top) / 2, y: 12, 'text-anchor': 'middle', transform: 'rotate(-90)' }, chart.y));
}

// Markers tell operators apart; curves need them only if there are several.
const isMarked = (chart, series) => chart.kind === 'points' || new Set(series.map(({ mark }) => mark)).size > 1;

// Marks at almost the same x stand side by side, so that none hides another or its interval.
function sideBySide(series, x) {
  const all = series.flatMap((one) => one.points.map(([value], i) => ({ one, i, at: x(value) }))).sort((a, b) => a.at - b.at);
  const places = new Map(series.map((one) => [one, []]));
  for (let begin = 0, end; begin < all.length; begin = end) {
    for (end = begin + 1; end < all.length && all[end].at - all[end - 1].at < 6;) end++;
    const step = Math.min(9, 54 / (end - begin)), middle = (all[begin].at + all[end - 1].at) / 2;
    for (let k = begin; k < end; k++) places.get(all[k].one)[all[k].i] = middle + (k - (begin + end - 1) / 2) * step;
  }
  return (one, i) => places.get(one)[i];
}

function plotSeries(group, chart, series, marks, placeOf, y, marked) {
  const place = (i) => placeOf(series, i);
  const shown = chart.log_y ? series.points.map((p, i) => [p, i]).filter(([[, v]]) => v > 0) : series.points.map((p, i) => [p, i]);
  const path = (pairs) => pairs.map(([px, py], i) => `${i ? 'L' : 'M'}${px.toFixed(1)} ${py.toFixed(1)}`).join('');
  const safe = (value, fallback) => y(chart.log_y && value <= 0 ? fallback : value);
  if (chart.kind === 'curve' && series.low.length) {
    const upper = shown.map(([, i]) => [place(i), y(series.high[i])]);
    const lower = shown.map(([[, v], i]) => [place(i), safe(series.low[i], v)]).reverse();
    const band = draw('path', { class: 'band', d: `${path([...upper, ...lower])}Z` });
    band.style.fill = colorOf(series);
    group.append(band);
  }
  const line = draw('path', { class: series.paper ? 'line paper' : 'line', d: path(shown.map(([[, v], i]) => [place(i), y(v)])), 'stroke-dasharray': dashOf(series) });
  line.style.stroke = colorOf(series);
  group.append(line);
  if (!marked) return;
  const every = chart.kind === 'points' ? 1 : Math.max(1, Math.floor(shown.length / 6));
  for (const [[, v], i] of shown.filter((_, n) => n % every === 0)) {
    if (chart.kind === 'points' && series.high[i] > series.low[i]) {
      const bar = draw('path', { class: 'bar', d: `M${place(i)} ${y(series.low[i])}V${y(series.high[i])}` });
      bar.style.stroke = colorOf(series);
      group.append(bar);
    }
    const mark = markOf(series, marks);
    mark.setAttribute('transform', `translate(${place(i).toFixed(1)} ${y(v).toFixed(1)})`);
    group.append(mark);
  }
}
