// All heads of all layers, small.

const KIND_NAMES = {
  encoder: "Encoder", decoder: "Decoder", cross: "Cross",
};

function headName(kind, layer, head) {
  const where = layer === ALL ? "all layers" : `layer ${layer + 1}`;
  return `${KIND_NAMES[kind]}, ${where}, ${headLabel(head)}`;
}

class Grid {
  uses = ["leaf", "words", "hideEnd", "kind", "layer", "head", "theme"];

  constructor(viewer) {
    this.viewer = viewer;
    const { heads } = viewer.data;
    this.cells = h("div", {
      class: "grid", role: "radiogroup", "aria-label": "Heads",
      style: `--columns: ${heads + 1}`,
      onpointermove: (event) => this.point(event),
      onpointerleave: () => viewer.hover([]),
    });
    this.kinds = choice("Attention", Object.entries(KIND_NAMES),
      viewer.state.kind, (kind) => viewer.set({ kind }));
    roving(this.cells, (button, key) => this.neighbour(button, key),
      (button) => button.click());
    // A picture is drawn when it comes into sight.
    this.seen = new IntersectionObserver((entries) => entries.forEach(
      (entry) => entry.isIntersecting && this.draw(entry.target)));
    this.element = h("section", { "aria-label": "All heads" },
      h("h2", {}, "All heads"), this.kinds, this.cells,
      h("p", { class: "note" }, "Numbers: entropy in bits, the mean over the " +
        "rows, of pieces and with the end token; under a mean that of the " +
        "mean, from its 8-bit weights. 0 bits look at one piece."));
  }

  render(changed) {
    if (!["leaf", "words", "hideEnd", "kind", "theme"].some(
      (name) => changed.has(name))) {
      this.mark();
      return;
    }
    const { state: { kind }, data } = this.viewer;
    const heads = data.heads, layers = data.layers[kind];
    this.seen.disconnect();
    this.cells.replaceChildren(
      h("span", {}),
      ...range(heads).map((head) => h("span", { class: "head" },
        String(head + 1))),
      h("span", { class: "head" }, "mean"),
      ...range(layers).flatMap((layer) => [
        h("span", { class: "layer" }, String(layer + 1)),
        ...[...range(heads), ALL].map((head) => this.cell(layer, head)),
      ]),
      h("span", { class: "layer all" }, "mean of all layers"),
      this.cell(ALL, ALL));
    this.mark();
  }

  cell(layer, head) {
    const { state, attention } = this.viewer;
    const bits = attention.entropy(state.kind, layer, head);
    const name = `${headName(state.kind, layer, head)}, mean entropy ` +
      `${fixed(bits, 2)} bits`;
    const button = h("button", {
      type: "button", role: "radio", "data-layer": layer, "data-head": head,
      tabindex: -1, "aria-label": name, title: name,
      onclick: () => this.viewer.set({ layer, head }),
    }, h("span", { class: "picture" }), h("small", {}, fixed(bits, 2)));
    this.seen.observe(button);
    return button;
  }

  draw(button) {
    this.seen.unobserve(button);
    const { state, attention, colours } = this.viewer;
    const rows = attention.rows(state.kind).groups.length;
    const columns = attention.columns(state.kind).groups.length;
    if (!rows || !columns) return;
    const values = attention.matrix(state.kind, ...this.place(button));
    const picture = pixels(values, rows, columns, colours);
    picture.classList.toggle("few", Math.max(rows, columns) < 64);
    button.firstChild.replaceChildren(picture);
  }

  // The pieces that a pixel of a picture stands for.
  point(event) {
    const { state: { kind }, attention } = this.viewer;
    const picture = event.target.closest(".picture");
    const box = picture && picture.getBoundingClientRect();
    const key = ({ keys }, part) => keys[Math.floor(part * keys.length)];
    this.viewer.hover(!picture ? [] : [
      key(attention.rows(kind), (event.clientY - box.top) / box.height),
      key(attention.columns(kind), (event.clientX - box.left) / box.width),
    ]);
  }

  // Bands in all pictures, which the style sheet draws.
  hover() {
    const { state: { kind }, attention } = this.viewer;
    const rows = attention.rows(kind), columns = attention.columns(kind);
    const [row, column] = this.viewer.pointedAt(rows, columns);
    const band = (name, i, { keys }) => {
      this.cells.classList.toggle(`has-${name}`, i >= 0);
      this.cells.style.setProperty(`--${name}`, i);
      this.cells.style.setProperty(`--of-${name}`, keys.length);
    };
    band("row", row, rows);
    band("column", column, columns);
  }

  place(button) {
    return [Number(button.dataset.layer), Number(button.dataset.head)];
  }

  button(layer, head) {
    return this.cells.querySelector(
      `[data-layer="${layer}"][data-head="${head}"]`);
  }

  mark() {
    const { layer, head } = this.viewer.state;
    const chosen = this.button(layer, head);
    this.cells.querySelectorAll("button").forEach((button) =>
      button.setAttribute("aria-checked", String(button === chosen)));
    stopAt(this.cells, chosen);
  }

  neighbour(button, key) {
    const { state: { kind }, data } = this.viewer;
    const heads = data.heads, layers = data.layers[kind];
    let [layer, head] = this.place(button);
    // The means stand after the others.
    if (layer === ALL) layer = layers;
    if (head === ALL) head = heads;
    if (key === "ArrowLeft") head--;
    if (key === "ArrowRight") head++;
    if (key === "ArrowUp") layer--;
    if (key === "ArrowDown") layer++;
    if (layer === layers) head = heads;
    return this.button(
      layer === layers ? ALL : layer, head === heads ? ALL : head);
  }
}
