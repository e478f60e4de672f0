// Lines between two rows or columns of words: what attends, and to what.

const FAINTEST = 0.01; // No line is drawn for less.

const measure = document.createElement("canvas").getContext("2d");

function widest(labels, font) {
  measure.font = font;
  return Math.max(0, ...labels.map(
    (label) => measure.measureText(label).width));
}

// An SVG of its own, which may also be saved.
//   rows, columns: axes.
//   heads: [{name, values, look}], look: attributes of its lines.
//   from: places of the rows whose lines are drawn, or null for all.
//   across: words lie in two rows, turned, as in the paper.
//   aligned: for each row a column, or null.
//   viewer: whose views answer where a word is pointed at.
function linesPicture(
  { rows, columns, heads, from, across, aligned, title, viewer }) {
  const count = Math.max(rows.labels.length, columns.labels.length, 1);
  const cell = across ? 22 : count > 80 ? 14 : 21;
  const size = Math.min(13, cell - 2);
  const font = `${size}px system-ui, sans-serif`;
  const [before, after] = [rows, columns].map(
    (side) => widest(side.labels, font) + 8);
  const gap = across ? 150 : 220, margin = across ? 6 : 44;
  const depth = margin + before + gap + after + margin;
  const length = cell * count + 8;
  const point = (along, i) => {
    const at = 4 + (i + 0.5) * cell;
    return across ? [at, along] : [along, at];
  };
  const picture = s("svg", {
    width: across ? length : depth, height: across ? depth : length,
    "font-family": "system-ui, sans-serif", "font-size": size, role: "img",
    fill: "currentColor", "aria-label": title,
  });
  const start = margin + before, end = start + gap;
  const groups = rows.labels.map((_, i) => s("g", { "data-row": i }));
  for (const i of from || rows.labels.keys()) {
    heads.forEach((head, number) => {
      const shift = 2.5 * (number - (heads.length - 1) / 2);
      columns.labels.forEach((_, j) => {
        const weight = head.values[i * columns.labels.length + j];
        if (weight < FAINTEST) return;
        groups[i].append(line(
          point(start + 2, i + shift / cell), point(end - 2, j + shift / cell),
          { ...head.look, "stroke-opacity": weight.toFixed(3),
            "data-column": j },
          `${head.name}: ${rows.labels[i]} → ${columns.labels[j]} ` +
            fixed(weight)));
      });
    });
    if (aligned && aligned[i] >= 0) {
      groups[i].append(line(point(start + 2, i), point(end - 2, aligned[i]), {
        class: "aligned", stroke: "#d55e00", "stroke-dasharray": "3 4",
        "data-column": aligned[i],
      }, "alignment"));
    }
  }
  const word = (side, i, along, anchor, dim) => {
    const [x, y] = point(along, i);
    const key = side.keys[i];
    return s("text", {
      x, y, "text-anchor": anchor, "dominant-baseline": "central",
      "data-key": key, opacity: dim ? 0.45 : null,
      "unicode-bidi": "plaintext", lang: side.lang,
      transform: across ? `rotate(-90 ${x} ${y})` : null,
      ...viewer.hovering(
        () => viewer.hover(side === rows ? [key, null] : [null, key])),
    }, side.labels[i]);
  };
  const near = across ? ["start", "end"] : ["end", "start"];
  picture.append(...groups,
    ...rows.labels.map((_, i) => word(
      rows, i, start - 5, near[0], from && !from.includes(i))),
    ...columns.labels.map((_, j) => word(columns, j, end + 5, near[1])));
  return picture;
}

function line([x1, y1], [x2, y2], attributes, title) {
  return s("line", { x1, y1, x2, y2, "stroke-width": 2, ...attributes },
    s("title", {}, title));
}
