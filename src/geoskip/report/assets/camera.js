// The view shared by all meshes of a stage; the axes are those of View in report/pictures.py.
const START = { azimuth: 25, elevation: 8, zoom: 1 };

class Camera {
  constructor() { Object.assign(this, START); }

  reset() { Object.assign(this, START); }

  turn(right, up) {
    this.azimuth = (this.azimuth + right) % 360;
    this.elevation = Math.max(-89, Math.min(89, this.elevation + up));
  }

  scale(factor) { this.zoom = Math.max(0.4, Math.min(12, this.zoom * factor)); }

  // Right, up and towards the eye, as rows of a 3 × 3 matrix.
  axes() {
    const a = this.azimuth * Math.PI / 180, e = this.elevation * Math.PI / 180;
    const [sa, ca, se, ce] = [Math.sin(a), Math.cos(a), Math.sin(e), Math.cos(e)];
    return [ca, 0, -sa, -sa * se, ce, -ca * se, sa * ce, se, ca * ce];
  }
}

// The frame of a picture: the middle of the mesh, and the length to cover so that it stays inside when rotated about the vertical axis.
function frameOf(verts) {
  const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
  for (let i = 0; i < verts.length; i++) {
    low[i % 3] = Math.min(low[i % 3], verts[i]);
    high[i % 3] = Math.max(high[i % 3], verts[i]);
  }
  const center = low.map((least, axis) => (least + high[axis]) / 2);
  let flat = 0;
  for (let i = 0; i < verts.length; i += 3) flat = Math.max(flat, (verts[i] - center[0]) ** 2 + (verts[i + 2] - center[2]) ** 2);
  return { center, extent: 2.1 * Math.max(Math.sqrt(flat), (high[1] - low[1]) / 2, 1e-9) };
}

// Normals of the vertices: sums of the faces' normals, weighted by area.
function normalsOf(verts, faces) {
  const sums = new Float32Array(verts.length);
  for (let f = 0; f < faces.length; f += 3) {
    const i = 3 * faces[f], j = 3 * faces[f + 1], k = 3 * faces[f + 2];
    const ux = verts[j] - verts[i], uy = verts[j + 1] - verts[i + 1], uz = verts[j + 2] - verts[i + 2];
    const vx = verts[k] - verts[i], vy = verts[k + 1] - verts[i + 1], vz = verts[k + 2] - verts[i + 2];
    const x = uy * vz - uz * vy, y = uz * vx - ux * vz, z = ux * vy - uy * vx;
    for (const corner of [i, j, k]) { sums[corner] += x; sums[corner + 1] += y; sums[corner + 2] += z; }
  }
  return sums;
}

// The edges of the faces. Inner edges occur twice, which looks the same.
function edgesOf(faces) {
  const edges = new Uint32Array(2 * faces.length);
  for (let f = 0, e = 0; f < faces.length; f += 3) {
    for (let side = 0; side < 3; side++) { edges[e++] = faces[f + side]; edges[e++] = faces[f + (side + 1) % 3]; }
  }
  return edges;
}
