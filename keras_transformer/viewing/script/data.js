// The facts, the weights, and the matrices made of them.
//
// Axes: L layers, H heads, S source pieces, T target pieces, R rows.

const END = "</s>";
const START = "<s>";
const ALL = -1; // In the place of a layer or a head: the mean of all.

const range = (count) => Array.from({ length: count }, (_, i) => i);

// Of a node, in the order of Python's `Node`.
const NODE = [
  "parent", "step", "piece", "logProb", "score", "fate", "endsWith", "rank",
  "row",
];

// A piece that stands for one byte, of a character without a piece.
const BYTE = /^<0x([0-9A-F]{2})>$/;

// What pieces spell, bytes as the characters that they are.
function spelled(pieces) {
  const bytes = pieces.flatMap((piece) => {
    const byte = BYTE.exec(piece);
    return byte ? parseInt(byte[1], 16) : [...new TextEncoder().encode(piece)];
  });
  return new TextDecoder().decode(Uint8Array.from(bytes));
}

function textOf(path) {
  return spelled(path.map((node) => node.piece)).replaceAll("▁", " ").trim();
}

// The bytes that `pack` in `viewer.py` has packed.
async function unpacked(text) {
  const binary = atob(text.trim());
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream();
  const inflated = stream.pipeThrough(new DecompressionStream("deflate"));
  return new Response(inflated).arrayBuffer();
}

class Data {
  constructor(facts, buffer) {
    Object.assign(this, facts);
    this.nodes = facts.nodes.map((values, number) => ({
      number,
      children: [],
      ...Object.fromEntries(NODE.map((name, i) => [name, values[i]])),
    }));
    for (const node of this.nodes) {
      const parent = this.nodes[node.parent];
      const before = parent ? parent.logProb : 0;
      node.probability = Math.exp(Math.min(0, node.logProb - before));
      if (parent) parent.children.push(node.number);
    }
    this.split(buffer);
  }

  // Entropies, then weights, as they lie in the buffer.
  split(buffer) {
    const { layers, heads, rows, longest } = this;
    const source = this.sourcePieces.length;
    this.sizes = {
      encoder: [source, source],
      cross: [rows, source],
      decoder: [rows, longest],
    };
    let offset = 0;
    const take = (type, count) => {
      const view = new type(buffer, offset, count);
      offset += view.byteLength;
      return view;
    };
    const each = (make) => Object.fromEntries(
      Object.entries(this.sizes).map(
        ([kind, size]) => [kind, make(layers[kind] * heads, size)]));
    this.entropies = each((all, [m]) => take(Uint16Array, all * m));
    this.weights = each((all, [m, n]) => take(Uint8Array, all * m * n));
  }

  // The nodes from the first piece to this one.
  path(leaf) {
    const found = [];
    for (let at = leaf; at >= 0; at = this.nodes[at].parent) {
      found.push(this.nodes[at]);
    }
    return found.reverse();
  }

  // The text of a hypothesis: as returned, or as its pieces spell it.
  text(leaf) {
    const node = this.nodes[leaf];
    if (!node) return this.translations[this.leaves.indexOf(leaf)] || "";
    if (node.rank >= 0) return this.translations[node.rank];
    return textOf(this.path(leaf).filter((step) => step.piece !== END));
  }
}

const WORDS = new Intl.Segmenter([], { granularity: "word" });
// Without spaces.
const BARE =
  /[\p{sc=Han}\p{sc=Bopo}\p{sc=Hira}\p{sc=Kana}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}\p{sc=Mymr}\p{sc=Tibt}]/u;

// Places of pieces, those of one word together where words are wanted.
function grouped(pieces, words) {
  const groups = [];
  const text = spelled(pieces);
  const cuts = WORDS.segment(text);
  const splits = (i) => {
    const at = spelled(pieces.slice(0, i)).length;
    return cuts.containing(at)?.index === at &&
      BARE.test(text[at - 1] + text[at]) && !/^<0x[89AB]/.test(pieces[i]);
  };
  pieces.forEach((piece, i) => {
    const before = pieces[i - 1];
    const begins = !words || i === 0 || piece.startsWith("▁") ||
      piece === END || before === START || splits(i);
    if (begins) groups.push([i]);
    else groups.at(-1).push(i);
  });
  return groups;
}

// Rows or columns: places of pieces, a label and a key for each group. Views
// mark what has the same key: "s3" of the source, "t3" of the target.
function axis(pieces, lang, { words, hideEnd }, key) {
  let groups = grouped(pieces, words);
  if (hideEnd && pieces.at(-1) === END) groups = groups.slice(0, -1);
  const label = (group) => {
    if (!words) return pieces[group[0]];
    return spelled(group.map((i) => pieces[i])).replace(/^▁(?=.)/, "");
  };
  return { lang, groups, labels: groups.map(label), keys: groups.map(key) };
}

// What one hypothesis looked at, in pieces or words.
class Attention {
  constructor(data, leaf, options) {
    this.data = data;
    this.path = data.path(leaf);
    this.cache = new Map();
    const pieces = this.path.map((node) => node.piece);
    const read = [START, ...pieces].slice(0, pieces.length);
    const [source, target] = [data.sourceSide.lang, data.targetSide.lang];
    this.source = axis(data.sourcePieces, source, options, (_, i) => `s${i}`);
    this.target = axis(pieces, target, options, (_, i) => `t${i}`);
    // What the decoder read: the start token stands before the target.
    this.read = axis(read, target, { words: options.words },
      (_, i) => (i ? `t${i - 1}` : "start"));
    // The rows of the weights, one for each piece.
    this.places = {
      encoder: data.sourcePieces.map((_, i) => i),
      decoder: this.path.map((node) => node.row),
      cross: this.path.map((node) => node.row),
    };
  }

  rows(kind) {
    return kind === "encoder" ? this.source : this.target;
  }

  columns(kind) {
    return kind === "decoder" ? this.read : this.source;
  }

  // Rows after rows, as Float32Array; columns added, rows averaged.
  matrix(kind, layer, head) {
    const name = `${kind}/${layer}/${head}`;
    if (!this.cache.has(name)) {
      this.cache.set(name, this.made(kind, layer, head));
    }
    return this.cache.get(name);
  }

  made(kind, layer, head) {
    const rows = this.rows(kind).groups, columns = this.columns(kind).groups;
    const values = new Float32Array(rows.length * columns.length);
    const bytes = this.data.weights[kind];
    const [height, width] = this.data.sizes[kind];
    const heads = this.chosen(kind, layer, head);
    rows.forEach((pieces, i) => {
      const scale = 1 / (255 * heads.length * pieces.length);
      for (const place of heads) for (const piece of pieces) {
        const start = (place * height + this.places[kind][piece]) * width;
        columns.forEach((group, j) => {
          let sum = 0;
          for (const column of group) sum += bytes[start + column];
          values[i * columns.length + j] += sum * scale;
        });
      }
    });
    return values;
  }

  // Numbers of heads, counted through all layers.
  chosen(kind, layer, head) {
    const { layers, heads } = this.data;
    const either = (count, one) => (one === ALL ? range(count) : [one]);
    return either(layers[kind], layer).flatMap(
      (l) => either(heads, head).map((h) => l * heads + h));
  }

  // Mean over the rows, of pieces and with the end token, in bits. Where the
  // picture is a mean of heads, it is that of the mean and not of the heads.
  entropy(kind, layer, head) {
    const [height] = this.data.sizes[kind];
    const heads = this.chosen(kind, layer, head);
    const all = this.data.entropies[kind], rows = this.places[kind];
    let sum = 0;
    for (const row of rows) {
      sum += heads.length > 1 ? this.entropyOfMean(kind, heads, row)
        : all[heads[0] * height + row] / 1000;
    }
    return rows.length ? sum / rows.length : 0;
  }

  // Of the 8-bit weights of a row, in the mean of some heads.
  entropyOfMean(kind, heads, row) {
    const [height, width] = this.data.sizes[kind];
    const bytes = this.data.weights[kind];
    let total = 0, logs = 0;
    for (let column = 0; column < width; column++) {
      let sum = 0;
      for (const place of heads) {
        sum += bytes[(place * height + row) * width + column];
      }
      total += sum;
      if (sum) logs += sum * Math.log2(sum);
    }
    // Only where all weights are too even for 8 bits is there no sum.
    return total ? Math.log2(total) - logs / total : Math.log2(width);
  }

  // For each row of cross-attention, the column that all heads look at most.
  alignment() {
    const width = this.source.groups.length;
    const mean = this.matrix("cross", ALL, ALL);
    return this.target.groups.map((_, i) => {
      const row = mean.subarray(i * width, (i + 1) * width);
      return row.indexOf(Math.max(...row));
    });
  }
}
