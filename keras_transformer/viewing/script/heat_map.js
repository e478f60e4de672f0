// One head as a heat map, on a canvas, with labels that thin out when small.

const FLAT = 10; // The height that a row should have at least, in pixels.
const TALL = 700; // The height that all rows have at most, if they can.

class HeatMap {
  constructor(viewer) {
    this.viewer = viewer;
    this.element = h("canvas", {
      class: "heat-map", tabindex: 0, role: "application",
      "aria-roledescription": "heat map",
      onpointermove: (event) => this.point(event),
      onpointerdown: (event) => this.point(event),
      // A finger that is lifted leaves the number to be read.
      onpointerleave: (event) => event.pointerType === "touch" ||
        this.leave(),
      onfocus: () => this.at || this.go(0, 0),
      onkeydown: (event) => this.key(event),
      onblur: () => this.leave(),
    });
  }

  render(panel, width) {
    Object.assign(this, panel);
    this.element.setAttribute("aria-label",
      `${panel.title}. Arrow keys go from weight to weight.`);
    const { rows, columns } = panel;
    this.font = "12px system-ui, sans-serif";
    const room = (labels) => Math.min(
      110, widest(labels, `600 ${this.font}`) + 10);
    this.left = room(rows.labels);
    this.top = room(columns.labels);
    const side = (width - this.left - 2) / columns.labels.length;
    this.across = Math.max(4, Math.min(30, Math.floor(side * 4) / 4));
    // Square, but where squares would be flat or the map tall.
    this.down = [this.across, FLAT, TALL / rows.labels.length].sort(
      (a, b) => a - b)[1];
    this.picture = pixels(panel.values, rows.labels.length,
      columns.labels.length, this.viewer.colours);
    this.draw();
  }

  draw() {
    const { rows, columns, across, down, left, top, viewer } = this;
    const width = left + across * columns.labels.length + 1;
    const height = top + down * rows.labels.length + 1;
    const scale = window.devicePixelRatio || 1;
    this.element.width = Math.round(width * scale);
    this.element.height = Math.round(height * scale);
    this.element.style.width = `${width}px`;
    const pen = this.element.getContext("2d");
    pen.scale(scale, scale);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(this.picture, left, top, width - left - 1, height - top - 1);
    const style = getComputedStyle(this.element);
    pen.strokeStyle = style.borderTopColor;
    pen.strokeRect(left - 0.5, top - 0.5, width - left, height - top);
    const [row, column] = viewer.pointedAt(rows, columns);
    this.outline(pen, row, column, style.outlineColor);
    if (this.aligned) this.rings(pen);
    this.labels(pen, row, column, style);
  }

  outline(pen, row, column, colour) {
    const { rows, columns, across, down, left, top } = this;
    pen.strokeStyle = colour;
    pen.lineWidth = 1.5;
    const width = across * columns.labels.length;
    const height = down * rows.labels.length;
    if (row >= 0) pen.strokeRect(left, top + row * down, width, down);
    if (column >= 0) {
      pen.strokeRect(left + column * across, top, across, height);
    }
  }

  // Rings on the words that the mean of all heads aligns.
  rings(pen) {
    const { across, down, left, top } = this;
    const side = Math.min(across, down);
    pen.strokeStyle = "#d55e00";
    pen.lineWidth = Math.max(1, Math.min(2, side / 6));
    this.aligned.forEach((column, row) => {
      pen.beginPath();
      pen.arc(left + (column + 0.5) * across, top + (row + 0.5) * down,
        Math.max(1.5, side * 0.36), 0, 7);
      pen.stroke();
    });
  }

  labels(pen, row, column, style) {
    const { rows, columns, across, down, left, top, viewer } = this;
    pen.textBaseline = "middle";
    // Labels closer than 12 pixels would overlap.
    const put = ({ lang, labels }, i, marked, angle) => {
      if (i % Math.ceil(12 / (angle ? across : down)) && !marked) return;
      pen.save();
      pen.font = marked ? `600 ${this.font}` : this.font;
      pen.fillStyle = marked ? style.outlineColor : style.color;
      if (angle) {
        pen.translate(left + (i + 0.5) * across, top - 5);
        pen.rotate(-Math.PI / 2);
        pen.textAlign = "left";
      } else {
        pen.translate(left - 5, top + (i + 0.5) * down);
        pen.textAlign = "right";
      }
      pen.lang = lang;
      pen.direction = direction(labels[i]);
      pen.fillText(this.fitting(pen, labels[i], (angle ? top : left) - 8), 0, 0);
      pen.restore();
    };
    // A marked label takes the place of the others near it.
    const near = (i, at, side) =>
      at >= 0 && i !== at && Math.abs(i - at) * side < 12;
    const step = this.kind === "encoder" ? -1 : viewer.state.step;
    rows.labels.forEach((_, i) => {
      const marked = i === row || rows.groups[i].includes(step);
      if (!near(i, row, down)) put(rows, i, marked, false);
    });
    columns.labels.forEach((_, j) => {
      if (!near(j, column, across)) put(columns, j, j === column, true);
    });
  }

  fitting(pen, label, width) {
    let text = label;
    let kept = [...label];
    while (kept.length > 1 && pen.measureText(text).width > width) {
      kept = kept.slice(0, -1);
      text = `${kept.join("")}…`;
    }
    return text;
  }

  point(event) {
    const box = this.element.getBoundingClientRect();
    const at = (offset, side, { labels }) => {
      const i = Math.floor(offset / side);
      return i >= 0 && i < labels.length ? i : -1;
    };
    this.go(at(event.clientY - box.top - this.top, this.down, this.rows),
      at(event.clientX - box.left - this.left, this.across, this.columns));
  }

  go(row, column) {
    this.at = [row, column];
    this.viewer.hover([this.rows.keys[row], this.columns.keys[column]]);
  }

  leave() {
    this.at = null;
    this.viewer.hover([]);
  }

  key(event) {
    const [row, column] = (this.at || [0, 0]).map((i) => Math.max(0, i));
    const last = [this.rows.labels.length - 1, this.columns.labels.length - 1];
    const to = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      Home: [row, 0], End: [row, last[1]],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    const within = to.map((i, side) => Math.max(0, Math.min(last[side], i)));
    this.go(...within);
  }
}
