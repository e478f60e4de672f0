// Decoding step by step: what might have come next, and what the beam kept.

class Steps {
  uses = ["leaf", "step"];

  constructor(viewer) {
    this.viewer = viewer;
    const move = (by) => () => viewer.set({ step: viewer.state.step + by });
    this.slider = h("input", {
      type: "range", min: 1, "aria-label": "Step",
      oninput: () => viewer.set({ step: Number(this.slider.value) - 1 }),
    });
    this.where = h("span", { class: "where" });
    this.looks = h("div", { class: "strip" });
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
        h("div", {}, h("h3", {}, "Likeliest next pieces"), this.bars),
        h("div", {}, h("h3", {}, "Hypotheses weighed in this step"),
          h("div", { class: "scroll" }, h("table", { class: "beam" },
            h("thead", {}, h("tr", {}, ["Hypothesis", "Log-probability",
              "Score", "Fate"].map((name, i) => h("th", {
              scope: "col", class: i === 1 || i === 2 ? "number" : null,
            }, name)))),
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
    this.where.replaceChildren(`${where} writes `, isolated(node.piece));
    this.looked(node);
    this.alternatives(node);
    this.hypotheses(node);
  }

  looked(node) {
    const { data, colours } = this.viewer;
    const whole = new Attention(data, node.number, {});
    const width = data.sourcePieces.length;
    const weights = whole.matrix("cross", ALL, ALL).slice(-width);
    this.looks.dir = direction(data.source);
    this.looks.replaceChildren(...data.sourcePieces.map((piece, j) => {
      const shown = shade(colours, weights[j]);
      const isBright = shown[0] * 3 + shown[1] * 6 + shown[2] > 1400;
      return h("span", {
        class: "token", title: fixed(weights[j]),
        style: `background: rgb(${shown.join(" ")}); ` +
          `color: ${isBright ? "#12161c" : "#ffffff"}`,
      }, isolated(piece));
    }));
  }

  // A bar for each piece that might have come next.
  alternatives(node) {
    const { data } = this.viewer;
    const siblings = data.nodes.filter(
      (other) => other.parent === node.parent && other.step === node.step);
    this.bars.replaceChildren(...data.alternatives[node.row].map(
      ([piece, logProb]) => {
        const probability = logProb === null ? 0 : Math.exp(logProb);
        const child = siblings.find((other) => other.piece === piece);
        const chosen = piece === node.piece;
        const taken = !child ? "not weighed" : chosen ? "in this hypothesis"
          : child.fate;
        return h("li", { "aria-current": chosen ? "true" : null },
          isolated(piece),
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
      const text = data.path(other.number).map((step) => step.piece).join("");
      return h("tr", {
        "aria-current": own.has(other.number) ? "true" : null,
        class: other.fate === "pruned" ? "lost" : null,
        onclick: () => viewer.set({ leaf: other.number, step: node.step }),
      },
      h("td", {}, h("button", {
        type: "button", class: "text tail", dir: direction(text),
        title: text.replaceAll("▁", " ").trim(),
      }, this.tail(other.number))),
      h("td", { class: "number" }, fixed(other.logProb)),
      h("td", { class: "number" }, fixed(other.score)),
      h("td", {}, other.rank < 0 ? other.fate : `returned, ${other.rank + 1}`));
    }));
  }

  // The last words of a hypothesis, in which they differ.
  tail(number) {
    const pieces = this.viewer.data.path(number).map((step) => step.piece);
    const text = pieces.join("").replaceAll("▁", " ").trim();
    const characters = [...text];
    return characters.length > 34
      ? `…${characters.slice(-33).join("")}` : text;
  }
}
