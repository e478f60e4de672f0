// Source, translation, and the table of the hypotheses returned.

class Summary {
  uses = ["leaf", "words", "hideEnd", "step"];

  constructor(viewer) {
    this.viewer = viewer;
    this.source = h("div", { class: "strip" });
    this.target = h("div", { class: "strip" });
    this.rows = h("tbody", {});
    roving(this.target, (button, key) => ({
      ArrowRight: button.nextElementSibling,
      ArrowLeft: button.previousElementSibling,
    })[alongText(button, key)]);
    this.element = h("section", { "aria-label": "Translation" },
      h("div", { class: "pair" },
        h("h3", {}, "Source"), h("div", {},
          h("p", { class: "source", ...viewer.data.sourceSide },
            viewer.data.source),
          viewer.data.cut ? h("p", { class: "note" }, viewer.data.cut) : null,
          this.source),
        h("h3", {}, "Looked at"), this.target),
      h("div", { class: "scroll" },
        h("table", { class: "hypotheses" },
          tableHead(["", "Translation", "Score", "Log-probability", "Tokens",
            "Ended by"], [2, 3, 4]),
          this.rows)));
  }

  render() {
    const { data, state, attention } = this.viewer;
    fill(this.source, laidOut(data.sourceSide, data.source), []);
    this.source.replaceChildren(...attention.source.labels.map(
      (label, i) => this.token("span", label, attention.source.keys[i])));
    fill(this.target, laidOut(data.targetSide, data.text(state.leaf)), []);
    const { groups, labels, keys } = attention.target;
    this.target.replaceChildren(...labels.map((label, i) => {
      const now = groups[i].includes(state.step);
      return this.token("button", label, keys[i], {
        type: "button", "data-focus": keys[i], tabindex: now ? 0 : -1,
        "aria-current": now ? "step" : null,
        onclick: () => this.viewer.set({ step: groups[i][0] }),
      });
    }));
    if (!labels.length) this.target.append(h("em", {}, "nothing was written"));
    const ranked = data.leaves.map((leaf, rank) => this.row(leaf, rank));
    const other = data.leaves.includes(state.leaf) ? []
      : [this.row(state.leaf, -1)];
    this.rows.replaceChildren(...ranked, ...other);
  }

  token(tag, label, key, attributes) {
    return h(tag, {
      class: "token", "data-key": key, ...attributes,
      ...this.viewer.hovering(() => this.viewer.hover([key])),
    }, isolated(label));
  }

  // A hypothesis; one that was not returned says what became of it.
  row(leaf, rank) {
    const { data, state } = this.viewer;
    const node = data.nodes[leaf];
    const chosen = leaf === state.leaf;
    const ended = node ? node.endsWith || node.fate : data.emptyEnd;
    return h("tr", {
      "aria-current": chosen ? "true" : null, onclick: () =>
        this.viewer.set({ leaf }),
      ...this.viewer.pointing(node, data.path(leaf)),
    },
    h("td", {}, rank < 0 ? "–" : String(rank + 1)),
    h("td", {}, h("button", {
      type: "button", class: "text", "aria-pressed": String(chosen),
      "data-focus": `leaf-${leaf}`,
      ...data.targetSide,
    }, data.text(leaf) || "(empty)")),
    h("td", { class: "number" }, fixed(node ? node.score : 0)),
    h("td", { class: "number" }, fixed(node ? node.logProb : 0)),
    h("td", { class: "number" }, String(node ? node.step + 1 : 0)),
    h("td", {}, rank < 0 && node.endsWith
      ? `${node.endsWith}, ${node.fate}` : ended));
  }
}
