// Viewers side by side that rotate together. Each is a plain canvas; the surface draws all of them at once.
const KEYS = {
  ArrowLeft: (c) => c.turn(8, 0), ArrowRight: (c) => c.turn(-8, 0), ArrowUp: (c) => c.turn(0, -8), ArrowDown: (c) => c.turn(0, 8),
  '+': (c) => c.scale(1.15), '=': (c) => c.scale(1.15), '-': (c) => c.scale(1 / 1.15), 0: (c) => c.reset(),
};

class Stage {
  constructor(holder, surface) {
    Object.assign(this, { holder, surface, camera: new Camera(), views: [], look: { high: 1, map: 'ember' } });
    this.redraw = once(() => this.paint());
    this.moving = this.slow = false;
    new ResizeObserver(this.redraw).observe(holder);
    surface.restored.push(this.redraw);
  }

  // Replaces the viewers: [{ title, skip }].
  cast(titles) {
    this.views = titles.map(({ title, skip }) => {
      const canvas = make('canvas', { tabindex: 0, role: 'img', 'aria-roledescription': 'rotatable mesh' });
      const note = make('div'), point = make('output', { class: 'point' }), absent = make('div', { class: 'absent' });
      const figure = make('figure', { class: `view ${skip}` }, canvas, absent, point, make('figcaption', {}, make('b', {}, title), note));
      const view = { title, canvas, note, point, absent, figure, shape: null };
      this.listen(view);
      return view;
    });
    this.holder.replaceChildren(...this.views.map((view) => view.figure));
  }

  // Sets the mesh of a viewer, { verts, faces, frame, values | colors, edges }, its caption (one line for each text), its label for screen readers,
  // and the text shown without a mesh.
  set(number, shape, notes, label, missing = '') {
    const view = this.views[number];
    if (shape && !shape.normals) shape.normals = normalsOf(shape.verts, shape.faces);
    Object.assign(view, { shape, read: shape?.read });
    view.note.replaceChildren(...notes.filter(Boolean).map((text) => make('span', {}, text)));
    view.absent.textContent = missing;
    view.point.textContent = '';
    view.canvas.setAttribute('aria-label', label);
    this.redraw();
  }

  // Moves the camera. In software rendering, pictures are coarser until it stops.
  move(action) {
    action(this.camera);
    this.moving = true;
    clearTimeout(this.rest);
    this.rest = setTimeout(() => { this.moving = false; this.redraw(); }, 250);
    this.redraw();
  }

  paint() {
    if (this.surface.lost) return;
    const begun = performance.now();
    requestAnimationFrame(() => { if (this.moving && performance.now() - begun > 60) this.slow = true; });
    const rough = this.moving && this.slow, ratio = Math.min(window.devicePixelRatio || 1, 2) * (rough ? 0.5 : 1);
    for (const { canvas } of this.views) {
      const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
      if (width && (canvas.width !== width || canvas.height !== height)) Object.assign(canvas, { width, height });
    }
    const drawn = (shape) => (shape && rough ? { ...shape, faces: roughOf(shape), edges: null } : shape);
    const items = this.views.map(({ canvas, shape }) => ({ shape: drawn(shape), width: canvas.width, height: canvas.height }));
    if (!items.length) return;
    this.surface.draw(items, this.camera, this.look);
    let left = 0;
    for (const { canvas } of this.views) {
      const context = canvas.getContext('2d'), top = this.surface.canvas.height - canvas.height;
      context.clearRect(0, 0, canvas.width, canvas.height);
      context.drawImage(this.surface.canvas, left, top, canvas.width, canvas.height, 0, 0, canvas.width, canvas.height);
      left += canvas.width;
    }
    if (!this.holder.dataset.drawn) performance.mark(`drawn ${this.holder.id}`);
    this.holder.dataset.drawn = String(Number(this.holder.dataset.drawn ?? 0) + 1);
  }

  listen(view) {
    const { canvas } = view, down = new Map();
    const apart = () => { const [a, b] = [...down.values()]; return Math.hypot(a.x - b.x, a.y - b.y); };
    canvas.addEventListener('pointerdown', (event) => {
      down.set(event.pointerId, { x: event.clientX, y: event.clientY });
      canvas.setPointerCapture(event.pointerId);
      this.readAt(view, event);
    });
    for (const end of ['pointerup', 'pointercancel']) canvas.addEventListener(end, (event) => down.delete(event.pointerId));
    canvas.addEventListener('pointermove', (event) => {
      const last = down.get(event.pointerId), now = { x: event.clientX, y: event.clientY };
      if (!last) return this.readAt(view, event);
      const before = down.size > 1 ? apart() : 0;
      down.set(event.pointerId, now);
      view.point.textContent = '';
      return this.move((camera) => {
        if (down.size > 1) camera.scale(apart() / Math.max(before, 1));
        else camera.turn((last.x - now.x) * 0.5, (now.y - last.y) * 0.5);
      });
    });
    canvas.addEventListener('pointerleave', (event) => { if (event.pointerType === 'mouse') view.point.textContent = ''; });
    canvas.addEventListener('dblclick', () => this.move((camera) => camera.reset()));
    canvas.addEventListener('wheel', (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.move((camera) => camera.scale(Math.exp(-event.deltaY / 200)));
    }, { passive: false });
    canvas.addEventListener('keydown', (event) => {
      if (!KEYS[event.key] || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      this.move(KEYS[event.key]);
    });
  }

  // Shows the value of the vertex under the pointer: the one nearest to the eye within a few pixels.
  readAt(view, event) {
    if (!view.read) return;
    const { canvas, shape } = view, { center: c, extent } = shape.frame, box = canvas.getBoundingClientRect(), m = this.camera.axes();
    const pixels = Math.min(box.width, box.height) * this.camera.zoom / extent;
    const x = (event.clientX - box.left - box.width / 2) / pixels + m[0] * c[0] + m[1] * c[1] + m[2] * c[2];
    const y = -(event.clientY - box.top - box.height / 2) / pixels + m[3] * c[0] + m[4] * c[1] + m[5] * c[2];
    const near = (9 / pixels) ** 2, p = shape.verts;
    let best = -1, depth = -Infinity;
    for (let i = 0; i < p.length; i += 3) {
      const dx = m[0] * p[i] + m[1] * p[i + 1] + m[2] * p[i + 2] - x, dy = m[3] * p[i] + m[4] * p[i + 1] + m[5] * p[i + 2] - y;
      if (dx * dx + dy * dy > near) continue;
      const z = m[6] * p[i] + m[7] * p[i + 1] + m[8] * p[i + 2];
      if (z > depth) [best, depth] = [i / 3, z];
    }
    view.point.textContent = best < 0 ? '' : view.read(best);
  }
}
