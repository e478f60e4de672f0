// The beam as a tree: a column for each step, the best of a step on top.

const COLUMN = 78, ROW = 42, EDGE = 44;
const MANY = 240; // Nodes, above which pruned ones are folded away at first.

// A shape for each fate, so that its colour need not be seen.
const SHAPES = {
  "followed": () => s("circle", { r: 5 }),
  "pruned": () => s("path", { d: "M-4 -4l8 8m0 -8l-8 8" }),
  "returned": () => s("circle", { r: 9 }),
  "displaced": () => s("path", { d: "M0 -7l7 7l-7 7l-7 -7z" }),
  "given up": () => s("path", { d: "M-5 -5h10v10h-10z" }),
};
const FATES = {
  "followed": "lived on",
  "pruned": "others of its step were better",
  "returned": "ended, and is in the result",
  "displaced": "ended, but others were better",
  "given up": "still live when the search ended",
};

class Tree {
  uses = ["leaf", "step", "folded"];

  constructor(viewer) {
    this.viewer = viewer;
    this.box = h("div", { class: "scroll tree" });
    this.about = h("output", { class: "readout", "aria-live": "polite" });
    roving(this.box, (node, key) => this.neighbour(node, key));
    const count = viewer.data.nodes.filter(
      (node) => node.fate === "pruned").length;
    this.element = h("section", { "aria-label": "Beam search" },
      h("h2", {}, "Beam search"),
      h("div", { class: "controls" },
        checkbox(`Hide the ${count} pruned`, viewer.state.folded,
          (folded) => viewer.set({ folded })),
        h("span", { class: "note" }, `beam ${viewer.data.beamSize}, length ` +
          `penalty ${viewer.data.lengthPenalty}`)),
      this.about, this.box, this.legend());
  }

  legend() {
    return h("ul", { class: "fates" }, Object.keys(SHAPES).map((fate) =>
      h("li", {},
        s("svg", { width: 22, height: 22, viewBox: "-11 -11 22 22",
          "aria-hidden": "true" },
        s("g", { class: `mark ${fate.replace(" ", "-")}` }, SHAPES[fate]())),
        h("strong", {}, fate), ` ${FATES[fate]}`)));
  }

  render(changed) {
    if (changed.has("folded") || !this.places) this.draw();
    this.mark(changed);
  }

  // Where each node lies; null for one folded away.
  placed() {
    const filled = [];
    return this.viewer.data.nodes.map((node) => {
      if (this.viewer.state.folded && node.fate === "pruned") return null;
      const row = filled[node.step] || 0;
      filled[node.step] = row + 1;
      return [EDGE + COLUMN * (node.step + 1), EDGE + ROW * row];
    });
  }

  draw() {
    const { nodes } = this.viewer.data;
    this.places = this.placed();
    const shown = nodes.filter((node) => this.places[node.number]);
    const far = (axis) => Math.max(EDGE, ...shown.map(
      (node) => this.places[node.number][axis]));
    this.links = new Map(shown.map((node) => [node.number, this.link(node)]));
    this.marks = new Map(shown.map((node) => [node.number, this.node(node)]));
    this.picture = s("svg", {
      width: far(0) + EDGE, height: far(1) + 24, role: "group",
      "aria-label": "Beam search as a tree",
    },
    s("g", { class: "links" }, ...this.links.values()),
    this.label(START, [EDGE, EDGE]),
    s("circle", { cx: EDGE, cy: EDGE, r: 3, class: "start" }),
    ...this.marks.values());
    this.box.replaceChildren(this.picture);
  }

  link(node) {
    const [x1, y1] = this.places[node.parent] || [EDGE, EDGE];
    const [x2, y2] = this.places[node.number];
    const middle = (x1 + x2) / 2;
    return s("path", {
      d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`,
      class: node.fate.replace(" ", "-"), fill: "none",
      "stroke-width": (0.75 + 4 * node.probability).toFixed(2),
      "stroke-opacity": (0.25 + 0.6 * node.probability).toFixed(2),
    });
  }

  node(node) {
    const [x, y] = this.places[node.number];
    const look = () => this.viewer.set({ leaf: node.number, step: node.step });
    const group = s("g", {
      class: "node", role: "button", tabindex: -1, "data-node": node.number,
      "aria-label": this.described(node),
      onclick: () => look(),
      onkeydown: (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        look();
      },
      ...this.viewer.pointing(node),
    },
    s("rect", { x: x - COLUMN / 2, y: y - ROW / 2 - 6, width: COLUMN,
      height: ROW, class: "area" }),
    s("g", { class: `mark ${node.fate.replace(" ", "-")}`,
      transform: `translate(${x} ${y})` }, SHAPES[node.fate]()),
    this.label(node.piece, [x, y]));
    if (node.rank >= 0) {
      group.append(s("text", { x, y, class: "rank" }, String(node.rank + 1)));
    }
    return group;
  }

  label(piece, [x, y]) {
    const { lang } = this.viewer.data.targetSide;
    return s("text", { x, y: y - 13, class: "piece", lang },
      shortened(piece, 10));
  }

  described(node) {
    const rank = node.rank < 0 ? "" : `, number ${node.rank + 1}`;
    return `“${node.piece}”, step ${node.step + 1}: ${node.fate}${rank}, ` +
      `probability ${fixed(node.probability)}, log-probability ` +
      `${fixed(node.logProb)}, score ${fixed(node.score)}`;
  }

  // The way to the hypothesis that is looked at.
  mark(changed) {
    const { attention: { path }, state } = this.viewer;
    const way = new Set(path.map((node) => node.number));
    const now = path[state.step];
    for (const [number, link] of this.links) {
      link.classList.toggle("chosen", way.has(number));
      const mark = this.marks.get(number);
      mark.classList.toggle("chosen", way.has(number));
      mark.classList.toggle("now", now && number === now.number);
      mark.setAttribute("aria-pressed", String(number === state.leaf));
    }
    const leaf = this.marks.get(state.leaf) || this.marks.values().next().value;
    stopAt(this.box, leaf);
    this.hover();
    // The page opens with the start of the tree.
    if (!changed.has("folded")) this.show(now);
  }

  show(node) {
    const { box } = this;
    const [x] = (node && this.places[node.number]) || [0];
    if (x < box.scrollLeft + COLUMN ||
      x > box.scrollLeft + box.clientWidth - COLUMN) {
      box.scrollLeft = x - box.clientWidth / 2;
    }
  }

  neighbour(element, key) {
    const { nodes } = this.viewer.data;
    const node = nodes[element.dataset.node];
    if (!node) return null;
    const shown = (number) => this.marks.get(number);
    if (key === "ArrowLeft") return shown(node.parent);
    if (key === "ArrowRight") return node.children.map(shown).find(Boolean);
    const level = nodes.filter(
      (other) => other.step === node.step && shown(other.number));
    const by = key === "ArrowDown" ? 1 : -1;
    const to = level[level.indexOf(node) + by];
    return to ? shown(to.number) : null;
  }

  // Tells of the node that is pointed at, or else of the step looked at.
  hover() {
    const { attention: { path }, nodes, state } = this.viewer;
    const told = nodes.at(-1) || path[state.step];
    this.about.textContent = told ? this.described(told) : "";
  }
}
