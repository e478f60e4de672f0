// Figures 3 to 5 of the paper, for the kind, layer and head looked at.

class Figures {
  uses = [
    "leaf", "words", "hideEnd", "kind", "layer", "head", "word", "other",
  ];

  constructor(viewer) {
    this.viewer = viewer;
    this.word = h("select", {
      onchange: () => viewer.set({ word: Number(this.word.value) }),
    });
    this.other = h("select", {
      onchange: () => viewer.set({ other: Number(this.other.value) }),
    }, range(viewer.data.heads).map(
      (i) => h("option", { value: i }, headLabel(i))));
    this.list = h("div", { class: "figures" });
    this.element = h("section", { "aria-label": "Figures 3 to 5" },
      h("h2", {}, "Figures 3 to 5 of the paper"),
      h("div", { class: "controls" },
        h("label", {}, "Word ", this.word),
        h("label", {}, "Second head ", this.other)),
      this.list);
  }

  render() {
    const { state, attention, data } = this.viewer;
    const { kind } = state;
    const layer = state.layer === ALL ? data.layers[kind] - 1 : state.layer;
    const head = state.head === ALL ? 0 : state.head;
    const rows = attention.rows(kind), columns = attention.columns(kind);
    if (!rows.labels.length || !columns.labels.length) {
      this.list.replaceChildren();
      return;
    }
    const count = rows.labels.length;
    const word = state.word < count ? state.word : count >> 1;
    this.word.replaceChildren(...rows.labels.map((label, i) => h("option", {
      value: i, selected: i === word,
    }, label)));
    this.other.value = state.other;
    const of = (number) => ({
      name: headLabel(number), look: headLine(number),
      values: attention.matrix(kind, layer, number),
    });
    const where = `${KIND_NAMES[kind]}, layer ${layer + 1}`;
    const all = range(data.heads).map(of);
    const two = state.other === head ? [of(head)] : [of(head), of(state.other)];
    const named = two.map(({ name }) => name).join(" and ");
    const common = { rows, columns, across: true };
    this.list.replaceChildren(
      this.figure(3, `${where}: all heads, from “${rows.labels[word]}”`,
        [{ ...common, heads: all, from: [word] }], all),
      this.figure(4, `${where}: ${headLabel(head)} in full, then ${named} ` +
        `from “${rows.labels[word]}”`, [
        { ...common, heads: [of(head)], from: null },
        { ...common, heads: two, from: [word] },
      ], two),
      this.figure(5, `${where}: ${named} in full`,
        two.map((one) => ({ ...common, heads: [one], from: null })), two));
  }

  figure(number, caption, panels, heads) {
    const pictures = panels.map((panel) => linesPicture(
      { ...panel, title: caption, viewer: this.viewer }));
    return h("figure", {},
      h("figcaption", {}, h("strong", {}, `As figure ${number}. `), caption,
        headKeys(heads)),
      h("div", { class: "scroll" }, pictures),
      h("button", {
        type: "button",
        onclick: () => save(stacked(pictures), `figure-${number}.svg`),
      }, `Download figure ${number} as SVG`));
  }
}

// Pictures below each other in one, on white.
function stacked(pictures) {
  const number = (picture, name) => Number(picture.getAttribute(name));
  const width = Math.max(...pictures.map((one) => number(one, "width")));
  let height = 0;
  const parts = pictures.map((picture) => {
    const part = picture.cloneNode(true);
    part.setAttribute("y", height);
    height += number(picture, "height") + 12;
    return part;
  });
  return s("svg", { xmlns: SVG, width, height, color: "#1b1f24",
    viewBox: `0 0 ${width} ${height}` },
  s("rect", { width, height, fill: "#ffffff" }), ...parts);
}

function save(picture, name) {
  const text = new XMLSerializer().serializeToString(picture);
  const address = URL.createObjectURL(
    new Blob([text], { type: "image/svg+xml" }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
