// Reads a chart at one x: a vertical line and a card with the values.
function nearestX(series, at) {
  let best = null;
  for (const { points } of series) {
    for (const [x] of points) if (best === null || Math.abs(x - at) < Math.abs(best - at)) best = x;
  }
  return best;
}

// The value of a point, and the ends of its interval.
function valueText({ points, low, high }, i, decimals) {
  const shown = (value) => figure(value, decimals), interval = () => ` (${shown(low[i])} to ${shown(high[i])})`;
  return shown(points[i][1]) + (high[i] > low[i] ? interval() : '');
}

function valuesAt(series, x, step, decimals) {
  const values = [];
  for (const one of series) {
    let best = null;
    one.points.forEach((point, i) => {
      if (Math.abs(point[0] - x) <= step && (best === null || Math.abs(point[0] - x) < Math.abs(one.points[best][0] - x))) best = i;
    });
    if (best !== null) values.push({ series: one, y: one.points[best][1], text: valueText(one, best, decimals) });
  }
  return values.sort((a, b) => b.y - a.y);
}

class Reading {
  constructor(holder, status) {
    Object.assign(this, { holder, status, tip: make('div', { class: 'tip', hidden: true }), x: null });
    holder.append(this.tip);
  }

  hide() {
    this.tip.hidden = true;
    this.x = null;
    this.line?.remove();
  }

  // Shows the values at x in a drawing with the given scales and box.
  show(svg, chart, series, at, { x, y, box }) {
    this.line?.remove();
    this.x = nearestX(series, at);
    if (this.x === null) return this.hide();
    const near = Math.abs(x.back(box.left + 12) - x.back(box.left));
    const values = valuesAt(series, this.x, near, chart.decimals), column = x(this.x);
    const place = Number(this.x.toPrecision(6)).toLocaleString('en');
    this.line = draw('line', { class: 'cross', x1: column, x2: column, y1: box.top, y2: box.height - box.bottom });
    svg.append(this.line);
    const lines = values.slice(0, 10).map((entry) => {
      const dot = make('i');
      dot.style.background = colorOf(entry.series);
      return make('div', {}, dot, `${entry.series.name}: ${entry.text}`);
    });
    if (values.length > 10) lines.push(make('div', {}, `and ${values.length - 10} more`));
    this.tip.replaceChildren(make('b', {}, `${chart.x}: ${place}`), ...lines);
    this.tip.hidden = false;
    // Beside the line, as far as there is room.
    const width = this.tip.offsetWidth, left = column > box.width / 2 ? column - 14 - width : column + 14;
    this.tip.style.left = `${Math.max(0, Math.min(left, box.width - width))}px`;
    this.tip.style.top = `${box.top + 4}px`;
    this.status.textContent = `${chart.x} ${place}: ${values.map((entry) => `${entry.series.name} ${entry.text}`).join(', ')}`;
    return undefined;
  }
}
