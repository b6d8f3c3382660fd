// A coarser version of a mesh for software rendering while it moves: the vertices of each grid cell are merged into one.
const ENOUGH = 12000, CELLS = 40, roughened = new WeakMap();

// Computed once for all meshes with the same faces.
function roughOf({ verts, faces }) {
  if (faces.length <= 3 * ENOUGH) return faces;
  if (!roughened.has(faces)) roughened.set(faces, roughFaces(verts, faces));
  return roughened.get(faces);
}

function roughFaces(verts, faces) {
  const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
  for (let i = 0; i < verts.length; i += 1) {
    low[i % 3] = Math.min(low[i % 3], verts[i]);
    high[i % 3] = Math.max(high[i % 3], verts[i]);
  }
  const side = Math.max(...high.map((top, axis) => top - low[axis])) / CELLS || 1, firsts = new Map();
  const own = Uint32Array.from({ length: verts.length / 3 }, (_, vertex) => {
    const [x, y, z] = low.map((least, axis) => Math.floor((verts[3 * vertex + axis] - least) / side));
    const cell = x + (CELLS + 1) * (y + (CELLS + 1) * z);
    if (!firsts.has(cell)) firsts.set(cell, vertex);
    return firsts.get(cell);
  });
  const kept = [];
  for (let i = 0; i < faces.length; i += 3) {
    const [a, b, c] = [own[faces[i]], own[faces[i + 1]], own[faces[i + 2]]];
    if (a !== b && b !== c && c !== a) kept.push(a, b, c);
  }
  return Uint32Array.from(kept);
}
