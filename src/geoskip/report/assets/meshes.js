// Reconstructions: the input, and the output of each method.
const MISSING = { affine: 'has no skips', convolution: 'has no skips to leave out' };

const KEPT = {
  affine: 'Of each block of the decoder, only the skip and the bias are left.', convolution: 'Of each block of the decoder, only the convolution is left.',
};

// What a method's mesh was decoded with.
function decodedWith(part, skip) {
  return { full: '', affine: skip === 'affine' ? 'affine only' : 'skip only', convolution: 'convolution only' }[part];
}

class Meshes extends Scenes {
  constructor(scenes, surface, maps) {
    super('mesh', scenes, surface, 'mm', 5, maps);
    // What is decoded by a part of each block has a camera and a color scale of its own.
    this.cameras = { full: this.stage.camera, affine: new Camera(), convolution: new Camera() };
    byId('mesh-part').addEventListener('change', () => { this.enterPart(); this.show(); });
    byId('mesh-level').addEventListener('change', () => this.show());
    byId('mesh-methods').addEventListener('change', () => { this.cast('Input', this.methods); this.show(); });
  }

  enter() {
    const { scene } = this;
    this.offerSamples();
    byId('mesh-paper').hidden = !scene.paper;
    byId('mesh-rule').hidden = !scene.changes[0];
    for (const input of byId('mesh-part').querySelectorAll('input')) {
      input.disabled = !scene.methods.some((method) => method.parts[input.value]);
      if (input.disabled && input.checked) byId('mesh-part').querySelector('[value=full]').checked = true;
    }
    this.offerMethods();
    this.cast('Input', this.methods);
    this.enterPart();
    return this.show(true);
  }

  get part() { return byId('mesh-part').querySelector('input:checked').value; }

  enterPart() {
    this.stage.camera = this.cameras[this.part];
    this.scale.set(this.scene.saturation[this.part]);
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

  async show(fresh = false) {
    const { scene, stage, methods, part, sample } = this;
    const request = this.request = {};
    const faces = await whole(scene.faces), input = await measured(scene.inputs[sample]);
    const moves = await Promise.all(methods.map((m) => (m.parts[part] ? measured(m.parts[part][sample]) : null)));
    const levels = await Promise.all(scene.levels.map(async (l) => ({ kept: await whole(l.kept), faces: await whole(l.faces) })));
    // A later choice has overtaken this one.
    if (request !== this.request) return;
    if (fresh) this.offer(input.length / 3, levels);
    const level = byId('mesh-level').selectedIndex > 0 ? levels[byId('mesh-level').selectedIndex - 1] : null;
    const frame = frameOf(input), count = (level ? level.kept.length : input.length / 3).toLocaleString('en');
    stage.set(0, shaped({ verts: input, faces, frame }, level), [scene.samples[sample], `${count} vertices`], `Input mesh: ${scene.samples[sample]}`);
    const means = methods.map((method, number) => this.showMethod(number + 1, method, moves[number], { input, faces, frame, level, part }));
    const where = level ? `, the ${count} vertices of level ${byId('mesh-level').selectedIndex}` : '';
    const framed = part === 'full' ? '' : ` ${KEPT[part]} Each mesh fills its own frame.`;
    // The change is that of whole meshes.
    const change = part === 'full' && !level && scene.changes[sample] ? ` From plain to affine: ${scene.changes[sample]}.` : '';
    byId('mesh-status').textContent = `${scene.samples[sample]}${where}. Mean error: ${means.filter(Boolean).join(', ')}.${change}${framed}`;
  }

  // Shows one method's mesh in its viewer; returns its mean error at the chosen level as text.
  showMethod(number, method, moved, { input, faces, frame, level, part }) {
    if (!moved) {
      const missing = method.parts.full ? `${method.name} ${MISSING[part]}` : `No sample of ${method.name} was kept.`;
      this.stage.set(number, null, [part === 'full' ? method.test : ''], `${method.name}: nothing to show`, missing);
      return '';
    }
    const verts = input.map((value, i) => value + moved[i]), errors = lengths(moved, this.scene.unit);
    const own = part === 'full' ? frame : frameOf(verts), how = decodedWith(part, method.skip);
    const shown = level ? Float32Array.from(level.kept, (vertex) => errors[vertex]) : errors;
    const mean = shown.reduce((sum, value) => sum + value, 0) / shown.length, largest = shown.reduce((a, b) => Math.max(a, b), 0);
    // The result on the test set is that of whole meshes.
    const words = `${how || (level ? 'these vertices' : 'this sample')}: mean ${figure(mean)}, max ${figure(largest)} mm`, test = how || level ? '' : method.test;
    this.stage.set(number, shaped({ verts, values: errors, faces, frame: own }, level), [words, test],
      `${method.name}, ${words}${test && `; ${test}`}`);
    return `${method.name}${how ? `, ${how},` : ''} ${figure(mean)} mm`;
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
function shaped({ verts, values = null, faces, frame }, level) {
  const read = (v) => (i) => (v ? `${figure(v[i])} mm` : '');
  if (!level) return { verts, values, faces, frame, read: values && read(values) };
  const kept = new Float32Array(3 * level.kept.length);
  level.kept.forEach((from, to) => kept.set(verts.subarray(3 * from, 3 * from + 3), 3 * to));
  const ofKept = values && Float32Array.from(level.kept, (from) => values[from]);
  return { verts: kept, values: ofKept, faces: level.faces, frame, edges: edgesOf(level.faces), read: ofKept && read(ofKept) };
}
