// Correspondences: the target in its own colors, and each mesh in the colors that a method transfers to it.
class Matches extends Scenes {
  constructor(scenes, surface, maps) {
    super('body', scenes, surface, '%', 10, maps);
    this.stage.camera.turn(0, -4);
    byId('body-show').addEventListener('change', () => this.show());
  }

  enter() {
    this.offerSamples();
    this.cast('Target', this.scene.methods);
    this.scale.set(this.scene.saturation);
    return this.show();
  }

  async show() {
    const { scene, stage, sample } = this, request = this.request = {};
    const by = byId('body-show').querySelector('input:checked').value;
    const [faces, verts, targetFaces, target, colors] = await Promise.all([whole(scene.faces[sample]), measured(scene.verts[sample]),
      whole(scene.target.faces), measured(scene.target.verts), whole(scene.target.colors)]);
    const results = await Promise.all(scene.methods.map(async (method) => (method.errors.length ? {
      method, predicted: await whole(method.predicted[sample]), errors: await measured(method.errors[sample]) } : { method })));
    if (request !== this.request) return;
    byId('body-scale').hidden = by !== 'error';
    byId('body-unknown').hidden = !scene.unlabeled;
    // One scale for the target and the mesh.
    const frames = [frameOf(target), frameOf(verts)], extent = Math.max(...frames.map((frame) => frame.extent));
    const [targetFrame, frame] = frames.map(({ center }) => ({ center, extent }));
    stage.set(0, { verts: target, faces: targetFaces, frame: targetFrame, colors: by === 'match' ? colors : null },
      [`${(target.length / 3).toLocaleString('en')} vertices`], by === 'match' ? 'The target, colored by position' : 'The target');
    const means = results.map(({ method, predicted, errors }, number) => {
      if (!errors) {
        stage.set(number + 1, null, [method.test], `${method.name}: nothing to show`, `No sample of ${method.name} was kept.`);
        return '';
      }
      // An error below 0 means that the vertex has no label.
      const known = errors.filter((value) => value >= 0), mean = known.reduce((sum, value) => sum + value, 0) / known.length;
      const words = known.length ? `this mesh: mean error ${percent(mean)}, ${method.right[sample].toFixed(2)}\u00a0% exact` : 'no labels, so the error is unknown';
      const shape = { verts, faces, frame, read: (i) => (errors[i] < 0 ? 'no label' : `${percent(errors[i])} off`) };
      if (by === 'match') shape.colors = transferred(colors, predicted);
      else shape.values = errors;
      stage.set(number + 1, shape, [words, method.test], `${method.name} on ${scene.samples[sample]}: ${words}; ${method.test}`);
      return `${method.name} ${known.length ? percent(mean) : 'unknown'}`;
    });
    byId('body-rule').hidden = !scene.changes[sample];
    const change = scene.changes[sample] ? ` Exact matches from plain to affine: ${scene.changes[sample]}.` : '';
    byId('body-status').textContent = `${scene.samples[sample]}. Mean geodesic error: ${means.filter(Boolean).join(', ')}.${change}`;
  }
}

// Errors below the precision of the tables are not told apart.
const percent = (value) => (value > 0 && value < 0.01 ? '< 0.01 %' : `${figure(value, 2)} %`);

function transferred(colors, predicted) {
  const result = new Uint8Array(3 * predicted.length);
  predicted.forEach((from, to) => result.set(colors.subarray(3 * from, 3 * from + 3), 3 * to));
  return result;
}
