// One head, large: as a heat map, as lines between words, or in numbers.

const LOOKS = [["map", "Heat map"], ["lines", "Lines"], ["numbers", "Numbers"]];

class Head {
  uses = [
    "leaf", "words", "hideEnd", "kind", "layer", "head", "look", "aligned",
    "step", "theme", "width",
  ];

  constructor(viewer) {
    this.viewer = viewer;
    this.title = h("h2", {});
    this.box = h("div", { class: "scroll large" });
    this.readout = h("output", { class: "readout", "aria-live": "polite" });
    this.legend = h("div", { class: "legend" });
    this.map = new HeatMap(viewer);
    const { state } = viewer;
    this.aligned = checkbox("Word alignment", state.aligned,
      (aligned) => viewer.set({ aligned }));
    this.element = h("section", { "aria-label": "One head" },
      this.title,
      h("div", { class: "controls" },
        choice("View", LOOKS, state.look, (look) => viewer.set({ look })),
        this.aligned),
      this.readout, this.box, this.legend);
  }

  // The matrix that is shown, with its axes.
  panel() {
    const { state: { kind, layer, head, aligned }, attention } = this.viewer;
    const title = headName(kind, layer, head);
    return {
      kind, title, rows: attention.rows(kind),
      columns: attention.columns(kind),
      values: attention.matrix(kind, layer, head),
      aligned: aligned && kind === "cross" ? attention.alignment() : null,
    };
  }

  render(changed) {
    const { state } = this.viewer;
    // Numbers and lines depend neither on the step nor on the width.
    const few = [...changed].every((name) => ["step", "width"].includes(name));
    if (few && state.look !== "map") return;
    const panel = this.panel();
    this.shown = panel;
    this.title.textContent = panel.title;
    // Only cross-attention aligns.
    this.aligned.control.disabled = state.kind !== "cross";
    if (this.isEmpty()) {
      this.box.replaceChildren(h("p", { class: "note" },
        this.viewer.attention.places[state.kind].length
          ? "Only the end token is there, and it is hidden."
          : "No piece was written, so nothing attends."));
    } else if (state.look === "map") {
      // Put in again it would lose the keyboard's focus.
      if (this.box.firstChild !== this.map.element) {
        this.box.replaceChildren(this.map.element);
      }
      this.map.render(panel, this.box.clientWidth);
    } else if (state.look === "lines") {
      this.box.replaceChildren(this.lines(panel));
    } else {
      this.box.replaceChildren(this.numbers(panel));
    }
    this.legend.replaceChildren(...this.scale(panel));
    this.hover();
  }

  // Without anything to draw.
  isEmpty() {
    const { rows, columns } = this.shown;
    return !rows.labels.length || !columns.labels.length;
  }

  // What the lines are called, and how they look.
  drawn() {
    const { head } = this.viewer.state;
    return { name: headLabel(head), look: headLine(head) };
  }

  lines(panel) {
    const picture = linesPicture({
      ...panel, from: null, across: false, viewer: this.viewer,
      heads: [{ ...this.drawn(), values: panel.values }],
    });
    picture.classList.add("lines");
    return picture;
  }

  numbers({ rows, columns, values, title }) {
    const width = columns.labels.length;
    const heading = (scope, { lang, keys, labels }, i, pointed) => h("th", {
      scope, "data-key": keys[i],
      ...this.viewer.hovering(() => this.viewer.hover(pointed)),
    }, isolated(labels[i], lang));
    const cells = (i) => columns.labels.map((_, j) => h("td", {
      "data-key": rows.keys[i],
      ...this.viewer.hovering(
        () => this.viewer.hover([rows.keys[i], columns.keys[j]])),
    }, fixed(values[i * width + j])));
    return h("table", { class: "numbers", tabindex: 0 },
      h("caption", {}, `${title}. A row for each piece that attends.`),
      h("thead", {}, h("tr", {}, h("td", {}),
        columns.keys.map((key, j) => heading("col", columns, j, [null, key])))),
      h("tbody", {}, rows.keys.map((key, i) => h("tr", {},
        heading("row", rows, i, [key, null]), cells(i)))));
  }

  // What the colours, or the lines, say.
  scale({ aligned }) {
    const { look } = this.viewer.state;
    const notes = [];
    if (look === "map") {
      const { colours } = this.viewer;
      const stops = Array.from({ length: 11 },
        (_, i) => `rgb(${colours[Math.round(25.5 * i)].join(" ")})`);
      notes.push(h("div", {
        class: "bar", "aria-hidden": "true",
        style: `background: linear-gradient(to right, ${stops.join()})`,
      }, [0, 0.1, 0.25, 0.5, 1].map((weight) => h("span", {
        style: `left: ${100 * Math.sqrt(weight)}%`,
      }, String(weight)))),
      "Rows attend to columns.");
    } else if (look === "lines") {
      notes.push(headKeys([this.drawn()]),
        "Left attends to right; the opacity of a line is its " +
        `weight, none is drawn below ${FAINTEST}.`);
    }
    if (aligned) {
      notes.push(` ${look === "map" ? "Rings" : "Dashes"}: where the mean of ` +
        "all cross heads is largest.");
    }
    return notes;
  }

  hover() {
    const { state } = this.viewer;
    if (!this.shown) return;
    if (this.isEmpty()) {
      this.readout.textContent = "";
      return;
    }
    if (state.look === "map") this.map.draw();
    if (state.look === "lines") this.brighten();
    this.readout.replaceChildren(...this.said().flat(3));
  }

  // Only the lines of the word that is pointed at.
  brighten() {
    const { rows, columns } = this.shown;
    const picture = this.box.firstChild;
    const [row, column] = this.viewer.pointedAt(rows, columns);
    picture.classList.toggle("dimmed", row >= 0 || column >= 0);
    picture.querySelectorAll(".share").forEach((old) => old.remove());
    picture.querySelectorAll(".bright").forEach(
      (old) => old.classList.remove("bright"));
    if (row < 0 && column < 0) return;
    const words = [...picture.querySelectorAll("text[data-key]")];
    const within = row < 0 ? "" : `[data-row="${row}"] `;
    const which = column < 0 ? "line" : `[data-column="${column}"]`;
    const lines = picture.querySelectorAll(`${within}${which}:not(.aligned)`);
    picture.append(...[...lines].map((line) => {
      line.classList.add("bright");
      const i = Number(line.parentNode.dataset.row);
      const j = Number(line.dataset.column);
      const value = this.shown.values[i * columns.labels.length + j];
      return row < 0 ? this.share(words[i], true, value)
        : this.share(words[rows.labels.length + j], false, value);
    }));
  }

  // The number at the far end of a line, beside its word.
  share(word, isLeft, weight) {
    const box = word.getBBox();
    return s("text", {
      class: "share", "dominant-baseline": "central", "font-size": 11,
      x: isLeft ? box.x - 6 : box.x + box.width + 6,
      y: word.getAttribute("y"), "text-anchor": isLeft ? "end" : "start",
    }, fixed(weight, 2));
  }

  said() {
    const { rows, columns, values } = this.shown;
    const { viewer } = this;
    const [row, column] = viewer.pointedAt(rows, columns);
    const width = columns.labels.length;
    const named = ({ labels, lang }, i) => quoted(labels[i], lang);
    const most = (side, weight) => side.labels
      .map((_, i) => [weight(i), i])
      .sort((a, b) => b[0] - a[0]).slice(0, 3)
      .map(([value, i], rank) => [
        rank ? ", " : "", named(side, i), ` ${fixed(value)}`]);
    if (row >= 0 && column >= 0 && viewer.hovered.length > 1) {
      return [named(rows, row), " → ", named(columns, column),
        `: ${fixed(values[row * width + column])}`];
    }
    if (row >= 0) {
      return [named(rows, row), " → ",
        most(columns, (j) => values[row * width + j])];
    }
    if (column >= 0) {
      return [named(columns, column), " ← ",
        most(rows, (i) => values[i * width + column])];
    }
    return ["Point at a word or a weight to read its number."];
  }
}
