// Scales from values to pixels, and the values of their ticks.
function linearTicks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => power * factor >= raw * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}

function logTicks(low, high) {
  const all = (steps) => {
    const ticks = [];
    for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) {
      for (const step of steps) ticks.push(Number((step * 10 ** p).toPrecision(3)));
    }
    return ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  };
  const choices = [[1], [1, 3], [1, 2, 5], [1, 2, 3, 4, 5, 6, 8]].map(all);
  return choices.find((ticks) => ticks.length >= 3) ?? linearTicks(low, high, 4);
}

// A scale from [low, high] to the pixels [from, to].
function scaleOf([low, high], [from, to], log) {
  const f = log ? Math.log : (value) => value, inverse = log ? Math.exp : (value) => value;
  const width = f(high) - f(low) || 1;
  const scale = (value) => from + (f(value) - f(low)) / width * (to - from);
  scale.back = (pixel) => inverse(f(low) + (pixel - from) / (to - from) * width);
  scale.ticks = (count) => (log ? logTicks(low, high) : linearTicks(low, high, count));
  return scale;
}

const tickText = (value) => (Math.abs(value) >= 1e4 ? `${Number((value / 1000).toPrecision(4))}k` : String(Number(value.toPrecision(6))));
