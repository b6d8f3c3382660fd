// The arrays embedded in the page: deflated and base64-encoded, the first bytes of all numbers first.
const KINDS = { u8: Uint8Array, i16: Int16Array, u16: Uint16Array, u32: Uint32Array };
const loaded = new Map();

async function inflate(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function unpack({ blob, type }) {
  const planes = await inflate(byId(`blob-${blob}`).textContent);
  const kind = KINDS[type], size = kind.BYTES_PER_ELEMENT, count = planes.length / size;
  const bytes = new Uint8Array(planes.length);
  for (let byte = 0; byte < size; byte++) {
    for (let i = 0; i < count; i++) bytes[i * size + byte] = planes[byte * count + i];
  }
  return new kind(bytes.buffer);
}

// The integers of an entry; the same array object every time.
function whole(entry) {
  const key = `${entry.blob} ${entry.type}`;
  if (!loaded.has(key)) loaded.set(key, unpack(entry));
  return loaded.get(key);
}

// The numbers of an entry that stores them as multiples of a step.
async function measured(entry) {
  const steps = await whole(entry);
  return Float32Array.from(steps, (value) => value * entry.step);
}
