// Decoding step by step: what might have come next, and what the beam kept.

class Steps {
  uses = ["leaf", "step", "words", "hideEnd", "theme"];

  constructor(viewer) {
    this.viewer = viewer;
    const move = (by) => () => viewer.set({ step: viewer.state.step + by });
    this.slider = h("input", {
      type: "range", min: 1, "aria-label": "Step",
      oninput: () => viewer.set({ step: Number(this.slider.value) - 1 }),
    });
    this.where = h("span", { class: "where" });
    this.looks = h("div", { class: "strip looks" });
    this.bars = h("ol", { class: "bars" });
    this.beam = h("tbody", {});
    this.body = h("div", {},
      h("div", { class: "controls" },
        h("button", { type: "button", "aria-label": "Step back",
          onclick: move(-1) }, "‹"),
        this.slider,
        h("button", { type: "button", "aria-label": "Step on",
          onclick: move(1) }, "›"),
        this.where),
      h("h3", {}, "Where all cross heads look, in the mean"), this.looks,
      h("div", { class: "columns" },
        h("div", {}, h("h3", {}, "Next pieces"), this.bars,
          h("p", { class: "note" }, "Not weighed: not among the best, or not " +
            "allowed, by a prefix or a minimum length.")),
        h("div", {}, h("h3", {}, "Hypotheses weighed in this step"),
          h("div", { class: "scroll" }, h("table", { class: "beam" },
            tableHead(["Hypothesis", "Log-probability", "Score", "Fate"],
              [1, 2]),
            this.beam)))));
    this.nothing = h("p", { class: "note" }, "No step was taken.");
    this.element = h("section", { "aria-label": "Step by step" },
      h("h2", {}, "Step by step"), this.body, this.nothing);
  }

  render() {
    const { attention: { path }, state } = this.viewer;
    this.body.hidden = !path.length;
    this.nothing.hidden = Boolean(path.length);
    if (!path.length) return;
    const node = path[state.step];
    this.slider.max = path.length;
    this.slider.value = state.step + 1;
    const where = `step ${state.step + 1} of ${path.length}`;
    this.slider.setAttribute(
      "aria-valuetext", `${where}, writes ${node.piece}`);
    const { lang } = this.viewer.data.targetSide;
    this.where.replaceChildren(`${where} writes `, isolated(node.piece, lang));
    this.looked(node);
    this.alternatives(node);
    this.hypotheses(node);
  }

  looked(node) {
    const { viewer, viewer: { attention, data, colours } } = this;
    const whole = new Attention(data, node.number, {});
    const width = data.sourcePieces.length;
    const weights = whole.matrix("cross", ALL, ALL).slice(-width);
    fill(this.looks, laidOut(data.sourceSide, data.source), []);
    this.looks.replaceChildren(...data.sourcePieces.map((piece, j) => {
      const shown = shade(colours, weights[j]);
      const isBright = shown[0] * 3 + shown[1] * 6 + shown[2] > 1400;
      // That of its word, where the other views show words.
      const key = attention.source.keys.find(
        (_, i) => attention.source.groups[i].includes(j));
      return h("span", {
        class: "token", title: fixed(weights[j]), "data-key": key,
        ...viewer.hovering(() => viewer.hover([key])),
        style: `background: rgb(${shown.join(" ")}); ` +
          `color: ${isBright ? "#12161c" : "#ffffff"}`,
      }, isolated(piece));
    }));
  }

  // A bar for each piece that might have come next: the likeliest, and those
  // that were weighed.
  alternatives(node) {
    const { viewer, viewer: { data } } = this;
    const siblings = data.nodes.filter(
      (other) => other.parent === node.parent && other.step === node.step);
    const likely = data.alternatives[node.row].map(([piece, logProb]) => [
      piece, logProb === null ? 0 : Math.exp(logProb)]);
    const others = siblings.filter(
      ({ piece }) => !likely.some(([name]) => name === piece));
    const pieces = [...likely, ...others.map(
      ({ piece, probability }) => [piece, probability])];
    this.bars.replaceChildren(...pieces.sort((a, b) => b[1] - a[1]).map(
      ([piece, probability]) => {
        const child = siblings.find((other) => other.piece === piece);
        const chosen = piece === node.piece;
        const taken = !child ? "not weighed" : chosen ? "in this hypothesis"
          : child.fate;
        return h("li", {
          "aria-current": chosen ? "true" : null, ...viewer.pointing(child),
        },
        isolated(piece, data.targetSide.lang),
        h("span", { class: "track" }, h("span", {
          class: `bar ${child && child.fate !== "pruned" ? "taken" : ""}`,
          style: `width: ${(100 * probability).toFixed(1)}%`,
        })),
        h("span", { class: "number" },
          probability < 0.0005 ? "<0.001" : fixed(probability)),
        h("small", {}, taken));
      }));
  }

  hypotheses(node) {
    const { viewer, viewer: { data } } = this;
    const own = new Set(viewer.attention.path.map((step) => step.number));
    const weighed = data.nodes.filter((other) => other.step === node.step);
    this.beam.replaceChildren(...weighed.map((other) => {
      const path = data.path(other.number);
      const text = textOf(path);
      return h("tr", {
        "aria-current": own.has(other.number) ? "true" : null,
        class: other.fate === "pruned" ? "lost" : null,
        ...viewer.pointing(other, path),
        onclick: () => viewer.set({ leaf: other.number, step: node.step }),
      },
      h("td", {}, h("button", {
        type: "button", class: "text tail", title: text,
        ...laidOut(data.targetSide, text),
        "data-focus": `weighed-${other.number}`,
      }, this.tail(text))),
      h("td", { class: "number" }, fixed(other.logProb)),
      h("td", { class: "number" }, fixed(other.score)),
      h("td", {}, other.rank < 0 ? other.fate : `returned, ${other.rank + 1}`));
    }));
  }

  // The last words of a hypothesis, in which they differ.
  tail(text) {
    const characters = [...text];
    return characters.length > 34
      ? `…${characters.slice(-33).join("")}` : text;
  }
}
