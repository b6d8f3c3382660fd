// Reconstructions: the input, and the output of each method.
const PART_WORDS = { full: 'decoded with everything', affine: 'decoded with skips only', convolution: 'decoded with convolutions only' };
const MISSING = { full: 'has no output', affine: 'has no skips', convolution: 'has no skips to leave out' };

class Meshes {
  constructor(scenes, surface, maps) {
    this.scenes = scenes;
    this.stage = new Stage(byId('mesh-views'), surface);
    this.scale = new ErrorScale('mesh', 'mm', 5, maps, (look) => { this.stage.look = look; this.stage.redraw(); });
    options(byId('mesh-scene'), scenes.map((scene) => scene.title));
    byId('mesh-scene').addEventListener('change', () => this.enter());
    for (const id of ['mesh-sample', 'mesh-level', 'mesh-part']) byId(id).addEventListener('change', () => this.show());
    byId('mesh-methods').addEventListener('change', () => { this.cast(); this.show(); });
    for (const [id, step] of [['mesh-before', -1], ['mesh-next', 1]]) byId(id).addEventListener('click', () => this.step(step));
    byId('mesh-controls').addEventListener('submit', (event) => event.preventDefault());
  }

  get scene() { return this.scenes[byId('mesh-scene').selectedIndex]; }

  enter() {
    const { scene } = this;
    options(byId('mesh-sample'), scene.samples);
    byId('mesh-before').hidden = byId('mesh-next').hidden = scene.samples.length < 2;
    for (const input of byId('mesh-part').querySelectorAll('input')) {
      input.disabled = !scene.methods.some((method) => method.parts[input.value]);
      if (input.disabled && input.checked) byId('mesh-part').querySelector('[value=full]').checked = true;
    }
    this.offerMethods();
    this.cast();
    this.scale.set(scene.saturation);
    return this.show(true);
  }

  // With more than three methods, variants are hidden at first.
  offerMethods() {
    const { methods } = this.scene, many = methods.length > 3;
    const chips = methods.map(({ name, variant }, number) => make('label', {},
      make('input', { type: 'checkbox', value: number, checked: !(many && variant) }), make('span', {}, name)));
    byId('mesh-methods').replaceChildren(byId('mesh-methods').firstElementChild, ...chips);
    byId('mesh-methods').hidden = !many;
  }

  get methods() {
    const boxes = [...byId('mesh-methods').querySelectorAll('input')];
    return this.scene.methods.filter((_, number) => boxes[number].checked);
  }

  cast() {
    this.stage.cast([{ title: 'Input', skip: 'input' }, ...this.methods.map(({ name, skip }) => ({ title: name, skip }))]);
  }

  step(by) {
    const select = byId('mesh-sample'), count = select.length;
    select.selectedIndex = (select.selectedIndex + by + count) % count;
    return this.show();
  }

  async show(fresh = false) {
    const { scene, stage, methods } = this, sample = byId('mesh-sample').selectedIndex;
    const part = byId('mesh-part').querySelector('input:checked').value;
    const request = this.request = {};
    const faces = await whole(scene.faces), input = await measured(scene.inputs[sample]);
    const moves = await Promise.all(methods.map((m) => (m.parts[part] ? measured(m.parts[part][sample]) : null)));
    const levels = await Promise.all(scene.levels.map(async (l) => ({ kept: await whole(l.kept), faces: await whole(l.faces) })));
    // A later choice has overtaken this one.
    if (request !== this.request) return;
    if (fresh) this.offer(input.length / 3, levels);
    const level = byId('mesh-level').selectedIndex > 0 ? levels[byId('mesh-level').selectedIndex - 1] : null;
    stage.extent = extentOf(input);
    stage.set(0, shaped(input, null, faces, level), `${(level ? level.kept.length : input.length / 3).toLocaleString('en')} vertices`,
      `Input mesh “${scene.samples[sample]}”`);
    const means = methods.map((method, number) => this.showMethod(number + 1, method, moves[number], { input, faces, level, part }));
    const where = level ? `, the ${level.kept.length.toLocaleString('en')} vertices of level ${byId('mesh-level').selectedIndex}` : '';
    byId('mesh-status').textContent = `Sample “${scene.samples[sample]}”, ${PART_WORDS[part]}${where}. Mean error: ${means.filter(Boolean).join(', ')}.`;
  }

  // Shows one method's mesh in its viewer; returns its mean error at the chosen level as text.
  showMethod(number, method, moved, { input, faces, level, part }) {
    if (!moved) {
      this.stage.set(number, null, '', `${method.name}: nothing to show`, `${method.name} ${MISSING[part]}`);
      return '';
    }
    const verts = input.map((value, i) => value + moved[i]), errors = lengths(moved, this.scene.unit);
    const shown = level ? Float32Array.from(level.kept, (vertex) => errors[vertex]) : errors;
    const mean = shown.reduce((sum, value) => sum + value, 0) / shown.length, largest = shown.reduce((a, b) => Math.max(a, b), 0);
    const words = `mean ${short(mean)} mm, max ${short(largest)} mm`;
    this.stage.set(number, shaped(verts, errors, faces, level), words, `${method.name}, ${PART_WORDS[part]}: ${words}`);
    return `${method.name} ${short(mean)} mm`;
  }

  offer(count, levels) {
    const sizes = [count, ...levels.map((level) => level.kept.length)];
    options(byId('mesh-level'), sizes.map((size, number) => `${number ? number : 'full'}: ${size.toLocaleString('en')} vertices`));
  }
}

function lengths(moved, unit) {
  const result = new Float32Array(moved.length / 3);
  for (let i = 0; i < result.length; i++) result[i] = Math.hypot(moved[3 * i], moved[3 * i + 1], moved[3 * i + 2]) * unit;
  return result;
}

// A mesh for the stage. A coarser level of the hierarchy keeps some of the vertices and shows its edges.
function shaped(verts, values, faces, level) {
  const read = (v) => (i) => (v ? `${short(v[i])} mm` : '');
  if (!level) return { verts, values, faces, read: values && read(values) };
  const kept = new Float32Array(3 * level.kept.length);
  level.kept.forEach((from, to) => kept.set(verts.subarray(3 * from, 3 * from + 3), 3 * to));
  const ofKept = values && Float32Array.from(level.kept, (from) => values[from]);
  return { verts: kept, values: ofKept, faces: level.faces, edges: edgesOf(level.faces), read: ofKept && read(ofKept) };
}
