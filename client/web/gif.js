// Writes an animated GIF of frames: one palette of 256 colours for all of them, and the LZW of the format.

const SAMPLE = 4; // every fourth pixel is enough to choose colours by
const CODE_BITS = 8, MOST_CODES = 4096;

/** frames: ImageData of one size. Returns the file as a Blob; it plays for ever at `fps`. */
export function gif(frames, fps) {
  const { width, height } = frames[0];
  const palette = choose(frames), nearest = finder(palette);
  const out = [...bytes("GIF89a"), ...two(width), ...two(height), 0xf7, 0, 0, ...palette.flat()];
  out.push(0x21, 0xff, 11, ...bytes("NETSCAPE2.0"), 3, 1, 0, 0, 0);
  const parts = [new Uint8Array(out)];
  let shown = 0;
  frames.forEach((frame, index) => {
    const until = Math.round((100 * (index + 1)) / fps); // hundredths; rounded so that the clip's whole length is right
    const head = [0x21, 0xf9, 4, 4, ...two(until - shown), 0, 0, 0x2c, 0, 0, 0, 0, ...two(width), ...two(height), 0, CODE_BITS];
    shown = until;
    parts.push(new Uint8Array(head), lzw(Uint8Array.from({ length: width * height }, (_, at) => nearest(frame.data, 4 * at))), new Uint8Array([0]));
  });
  return new Blob([...parts, new Uint8Array([0x3b])], { type: "image/gif" });
}

const bytes = (text) => [...text].map((one) => one.charCodeAt(0));
const two = (number) => [number & 255, number >> 8];
const key = (data, at) => ((data[at] >> 3) << 10) | ((data[at + 1] >> 3) << 5) | (data[at + 2] >> 3);

/** 256 colours by median cut: the box with the most to tell apart is cut at its middle until there are enough. */
function choose(frames) {
  const counts = new Map();
  for (const { data } of frames) for (let at = 0; at < data.length; at += 4 * SAMPLE) counts.set(key(data, at), (counts.get(key(data, at)) ?? 0) + 1);
  const colours = [...counts].map(([one, count]) => ({ rgb: [(one >> 10) << 3, ((one >> 5) & 31) << 3, (one & 31) << 3].map((part) => part | 4), count }));
  let boxes = [box(colours)];
  while (boxes.length < 256) {
    const widest = boxes.reduce((one, other) => (other.spread > one.spread ? other : one));
    if (widest.spread <= 0) break;
    const sorted = [...widest.colours].sort((one, other) => one.rgb[widest.axis] - other.rgb[widest.axis]);
    let half = widest.count / 2, cut = 0;
    while (cut < sorted.length - 1 && (half -= sorted[cut].count) > 0) cut++;
    cut = Math.max(1, cut);
    boxes = boxes.filter((one) => one !== widest).concat(box(sorted.slice(0, cut)), box(sorted.slice(cut)));
  }
  const palette = boxes.map(({ colours: inside, count }) => [0, 1, 2].map((axis) => Math.round(inside.reduce((sum, one) => sum + one.rgb[axis] * one.count, 0) / count)));
  while (palette.length < 256) palette.push([0, 0, 0]);
  return palette;
}

function box(colours) {
  const ranges = [0, 1, 2].map((axis) => {
    const values = colours.map((one) => one.rgb[axis]);
    return values.reduce((a, b) => Math.max(a, b)) - values.reduce((a, b) => Math.min(a, b));
  });
  const axis = ranges.indexOf(Math.max(...ranges)), count = colours.reduce((sum, one) => sum + one.count, 0);
  return { colours, axis, count, spread: colours.length > 1 ? ranges[axis] * Math.sqrt(count) : 0 };
}

function finder(palette) {
  const known = new Int16Array(32768).fill(-1);
  return (data, at) => {
    const one = key(data, at);
    if (known[one] < 0) {
      let best = Infinity;
      palette.forEach(([r, g, b], index) => {
        const far = 2 * (data[at] - r) ** 2 + 4 * (data[at + 1] - g) ** 2 + 3 * (data[at + 2] - b) ** 2;
        if (far < best) [best, known[one]] = [far, index];
      });
    }
    return known[one];
  };
}

/** The indices in GIF's variable-length codes, in blocks of at most 255 bytes. */
function lzw(indices) {
  const clear = 1 << CODE_BITS, out = [];
  let bits = 0, held = 0, size, next, table, block = [];
  const put = (code) => {
    held |= code << bits;
    for (bits += size; bits >= 8; bits -= 8, held >>>= 8) byte(held & 255);
  };
  const byte = (one) => {
    block.push(one);
    if (block.length === 255) flush();
  };
  const flush = () => {
    if (block.length) out.push(block.length, ...block);
    block = [];
  };
  const restart = () => {
    put(clear);
    [size, next, table] = [CODE_BITS + 1, clear + 2, new Map()];
  };
  size = CODE_BITS + 1;
  restart();
  let prefix = indices[0];
  for (let at = 1; at < indices.length; at++) {
    const pair = (prefix << 8) | indices[at], found = table.get(pair);
    if (found !== undefined) {
      prefix = found;
      continue;
    }
    put(prefix);
    if (next === MOST_CODES) restart();
    else {
      table.set(pair, next);
      if (next++ === 1 << size) size++;
    }
    prefix = indices[at];
  }
  put(prefix);
  if (next === 1 << size && size < 12) size++; // the reader has one entry more by then
  put(clear + 1);
  if (bits) byte(held & 255);
  flush();
  return new Uint8Array(out);
}
