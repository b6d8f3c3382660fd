// Draws shaded meshes. The page has a single WebGL context, since browsers allow few; the lamps are those of report/pictures.py.
const VERTEX = `#version 300 es
in vec3 position; in vec3 normal; in float value; in vec3 color;
uniform mat3 axes; uniform vec3 center; uniform vec2 reach; uniform float depth; uniform float lift;
out vec3 bent; out float amount; out vec3 tint;
void main() {
  vec3 seen = axes * (position - center);
  gl_Position = vec4(seen.xy / reach, -seen.z / depth - lift, 1.0);
  bent = axes * normal; amount = value; tint = color;
}`;
const FRAGMENT = `#version 300 es
precision highp float;
in vec3 bent; in float amount; in vec3 tint;
uniform int mode; uniform float high; uniform sampler2D map; uniform vec3 clay; uniform vec3 unknown; uniform float line;
out vec4 result;
float lamp(vec3 n, vec3 direction, float strength) {
  vec3 towards = normalize(direction);
  float soft = max((dot(n, towards) + 0.35) / 1.35, 0.0), gloss = max(dot(n, normalize(towards + vec3(0.0, 0.0, 1.0))), 0.0);
  // x^1.5 and x^32 without pow, which is slow in software rendering.
  gloss *= gloss; gloss *= gloss; gloss *= gloss; gloss *= gloss; gloss *= gloss;
  return strength * (soft * sqrt(soft) + 0.12 * gloss);
}
void main() {
  if (line > 0.0) { result = vec4(0.0, 0.0, 0.0, line); return; }
  vec3 n = bent / max(length(bent), 1e-20);
  if (!gl_FrontFacing) n = -n;
  float light = 0.10 * (1.0 + 0.5 * n.y) + lamp(n, vec3(-0.50, 0.60, 0.62), 0.86) + lamp(n, vec3(0.90, 0.05, 0.40), 0.16);
  // Insides are darker, but not at the outline, where a pixel may show a sliver of them.
  if (!gl_FrontFacing) light *= mix(1.0, 0.35, smoothstep(0.05, 0.35, abs(n.z)));
  // Values below 0 are unknown.
  vec3 base = mode == 1 && amount < 0.0 ? unknown : mode == 1 ? texture(map, vec2(clamp(amount / high, 0.0, 1.0) * 255.0 / 256.0 + 0.5 / 256.0, 0.5)).rgb
    : mode == 2 ? tint : clay;
  result = vec4(pow(clamp(pow(base, vec3(2.2)) * light, 0.0, 1.0), vec3(1.0 / 2.2)), 1.0);
}`;
const MODES = { clay: 0, value: 1, color: 2 };

class Surface {
  // Returns null if the browser has no WebGL 2: the page then keeps its still pictures.
  static open(maps) {
    const canvas = document.createElement('canvas');
    const gl = window.DecompressionStream && canvas.getContext('webgl2', { antialias: true, premultipliedAlpha: true });
    return gl ? new Surface(canvas, gl, maps) : null;
  }

  constructor(canvas, gl, maps) {
    Object.assign(this, { canvas, gl, maps, restored: [], lost: false });
    // Phones take the graphics from pages in the background.
    canvas.addEventListener('webglcontextlost', (event) => { event.preventDefault(); this.lost = true; });
    canvas.addEventListener('webglcontextrestored', () => { this.start(); this.restored.forEach((redraw) => redraw()); });
    this.start();
  }

  start() {
    const { gl, maps } = this;
    Object.assign(this, { buffers: new WeakMap(), textures: {}, lost: false });
    const program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
    gl.useProgram(program);
    this.at = (name) => gl.getUniformLocation(program, name);
    this.slot = Object.fromEntries(['position', 'normal', 'value', 'color'].map((n) => [n, gl.getAttribLocation(program, n)]));
    for (const [name, table] of Object.entries(maps)) this.textures[name] = this.texture(table);
    gl.enable(gl.DEPTH_TEST);
    gl.enable(gl.SCISSOR_TEST);
    gl.blendFuncSeparate(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA, gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  texture(table) {
    const { gl } = this, texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, texture);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGB, 256, 1, 0, gl.RGB, gl.UNSIGNED_BYTE, Uint8Array.from(table));
    for (const side of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, side, gl.CLAMP_TO_EDGE);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.LINEAR);
    return texture;
  }

  // Each array is uploaded once.
  buffer(array, target) {
    const { gl, buffers } = this;
    if (!buffers.has(array)) buffers.set(array, gl.createBuffer());
    else return gl.bindBuffer(target, buffers.get(array));
    gl.bindBuffer(target, buffers.get(array));
    return gl.bufferData(target, array, gl.STATIC_DRAW);
  }

  attribute(name, array, size) {
    const { gl } = this, slot = this.slot[name];
    if (!array) { gl.disableVertexAttribArray(slot); gl.vertexAttrib3f(slot, 0, 0, 0); return; }
    this.buffer(array, gl.ARRAY_BUFFER);
    gl.enableVertexAttribArray(slot);
    gl.vertexAttribPointer(slot, size, array instanceof Uint8Array ? gl.UNSIGNED_BYTE : gl.FLOAT, true, 0, 0);
  }

  // Draws each item in a tile of its own: { shape, width, height }, from left to right. Shapes have a frame: { center, extent }.
  draw(items, camera, { high, map }) {
    const { gl, canvas } = this;
    const width = items.reduce((sum, item) => sum + item.width, 0), height = Math.max(...items.map((item) => item.height));
    if (canvas.width < width) canvas.width = width;
    if (canvas.height < height) canvas.height = height;
    gl.bindTexture(gl.TEXTURE_2D, this.textures[map]);
    gl.uniformMatrix3fv(this.at('axes'), true, camera.axes());
    gl.uniform1f(this.at('high'), high);
    gl.uniform3f(this.at('clay'), 0.80, 0.73, 0.68);
    gl.uniform3f(this.at('unknown'), 0.58, 0.68, 0.82);
    let left = 0;
    for (const item of items) {
      gl.viewport(left, 0, item.width, item.height);
      gl.scissor(left, 0, item.width, item.height);
      gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
      if (item.shape) {
        const { center, extent } = item.shape.frame, half = extent / 2 / camera.zoom, least = Math.min(item.width, item.height);
        gl.uniform3f(this.at('center'), ...center);
        gl.uniform1f(this.at('depth'), 2 * extent);
        gl.uniform2f(this.at('reach'), half * item.width / least, half * item.height / least);
        this.shape(item.shape);
      }
      left += item.width;
    }
  }

  shape({ verts, normals, values, colors, faces, edges }) {
    const { gl } = this, wide = faces instanceof Uint32Array;
    this.attribute('position', verts, 3);
    this.attribute('normal', normals, 3);
    this.attribute('value', values, 1);
    this.attribute('color', colors, 3);
    gl.uniform1i(this.at('mode'), MODES[colors ? 'color' : values ? 'value' : 'clay']);
    gl.uniform1f(this.at('line'), 0);
    gl.uniform1f(this.at('lift'), 0);
    this.buffer(faces, gl.ELEMENT_ARRAY_BUFFER);
    gl.drawElements(gl.TRIANGLES, faces.length, wide ? gl.UNSIGNED_INT : gl.UNSIGNED_SHORT, 0);
    if (!edges) return;
    gl.uniform1f(this.at('line'), 0.45);
    // A little nearer than their faces, which would otherwise hide half of them.
    gl.uniform1f(this.at('lift'), 0.002);
    gl.enable(gl.BLEND);
    this.buffer(edges, gl.ELEMENT_ARRAY_BUFFER);
    gl.drawElements(gl.LINES, edges.length, gl.UNSIGNED_INT, 0);
    gl.disable(gl.BLEND);
  }
}
