// A viewer: what is looked at, and the views that show it.

const VIEWS = [Summary, Grid, Head, Steps, Tree, Figures];

// All of this page that share the script.
const viewers = [];

class Viewer {
  constructor(root, data) {
    this.data = data;
    this.hovered = []; // Keys of words.
    this.nodes = []; // Of the tree, pointed at.
    const best = data.leaves.length ? data.leaves[0] : -1;
    const kind = best < 0 ? "encoder" : "cross";
    this.state = {
      leaf: best, step: 0, kind, layer: data.layers[kind] - 1, head: ALL,
      words: false, hideEnd: false, look: "map", aligned: false,
      folded: data.nodes.length > MANY, word: Infinity,
      other: Math.min(1, data.heads - 1), theme: theme(), width: 0,
    };
    this.views = VIEWS.map((View) => new View(this));
    this.element = this.layout();
    root.append(h("style", {}, data.style), this.element);
    this.follow();
    this.render(new Set(Object.keys(this.state)));
  }

  layout() {
    this.theme = h("button", { type: "button", onclick: () => {
      const theme = this.state.theme === "dark" ? "light" : "dark";
      (isOwnPage() ? viewers : [this]).forEach((one) => one.set({ theme }));
    } });
    const [summary, grid, head, ...others] = this.views.map(
      (view) => view.element);
    return h("div", { class: "viewer" },
      h("header", {},
        h("h1", {}, h("bdi", this.data.sourceSide,
          shortened(this.data.source || "(empty)", 60)),
          h("small", {}, "Attention and beam search")),
        this.theme),
      summary,
      h("div", { class: "controls options" },
        choice("Show", [[false, "Pieces"], [true, "Words"]], false,
          (words) => this.set({ words, word: Infinity })),
        checkbox("Hide the end token", false,
          (hideEnd) => this.set({ hideEnd }))),
      h("div", { class: "heads" }, grid, head), ...others,
      h("footer", {}, NOTES.map((note) => h("p", {}, note()))));
  }

  // What comes into sight, and the colours and width of the page.
  follow() {
    this.near = new Set();
    const seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const view = this.views.find(({ element }) => element === target);
        if (isIntersecting) this.near.add(view);
        else this.near.delete(view);
      }
      this.draw();
      this.hoverNear(); // A view far away was not told what is pointed at.
    }, { rootMargin: "200px" });
    this.views.forEach((view) => {
      view.changed = new Set();
      seen.observe(view.element);
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change",
      () => this.set({ theme: theme() }));
    new ResizeObserver(() => {
      const width = Math.round(this.element.clientWidth);
      if (width) this.set({ width });
    }).observe(this.element);
  }

  set(changes) {
    const state = { ...this.state, ...changes };
    const path = this.data.path(state.leaf);
    state.step = Math.max(0, Math.min(state.step, path.length - 1));
    // The encoder may be deeper than the decoder.
    state.layer = Math.min(state.layer, this.data.layers[state.kind] - 1);
    const changed = new Set(Object.keys(state).filter(
      (name) => state[name] !== this.state[name]));
    this.state = state;
    if (changed.size) this.render(changed);
  }

  render(changed) {
    if (["leaf", "words", "hideEnd"].some((name) => changed.has(name))) {
      const { leaf, words, hideEnd } = this.state;
      this.attention = new Attention(this.data, leaf, { words, hideEnd });
      this.hover([]);
    }
    if (changed.has("theme")) {
      const { theme } = this.state;
      this.element.dataset.theme = theme;
      this.theme.textContent = theme === "dark" ? "Light page" : "Dark page";
      this.colours = ramp(theme);
      if (isOwnPage()) {
        const { backgroundColor } = getComputedStyle(this.element);
        document.body.style.background = backgroundColor;
      }
    }
    for (const view of this.views) {
      view.uses.filter((name) => changed.has(name)).forEach(
        (name) => view.changed.add(name));
    }
    this.draw();
  }

  // What is in sight at once, the others one by one when there is time.
  draw() {
    this.near.forEach((view) => this.redraw(view));
    clearTimeout(this.later);
    this.later = setTimeout(() => {
      const view = this.views.find(({ changed }) => changed.size);
      if (!view) return;
      this.redraw(view);
      this.draw();
    }, 30);
  }

  redraw(view) {
    const { changed } = view;
    if (!changed.size) return;
    view.changed = new Set();
    const focused = this.element.getRootNode().activeElement;
    view.render(changed);
    // What was made again takes the keyboard's focus over.
    if (focused && !focused.isConnected && focused.dataset.focus) {
      const name = focused.dataset.focus;
      const made = view.element.querySelector(`[data-focus="${name}"]`);
      if (made) made.focus({ preventScroll: true });
    }
    this.mark(view.element);
  }

  // Marks words in all views, [of a row, of a column] or one for both, and
  // nodes: by themselves those that wrote the word.
  hover(keys, nodes = this.writers(keys[0])) {
    const same = (list, other) => list.length === other.length &&
      list.every((one, i) => one === other[i]);
    if (same(keys, this.hovered) && same(nodes, this.nodes)) return;
    this.hovered = keys;
    this.nodes = nodes;
    this.element.querySelectorAll(".hovered").forEach(
      (element) => element.classList.remove("hovered"));
    this.mark(this.element);
    this.hoverNear();
  }

  hoverNear() {
    this.near.forEach((view) => view.hover && view.hover());
  }

  mark(element) {
    const keys = [...this.hovered, ...this.nodes.map(nodeKey)];
    for (const key of keys.filter(Boolean)) {
      element.querySelectorAll(`[data-key="${key}"]`).forEach(
        (other) => other.classList.add("hovered"));
    }
  }

  writers(key) {
    const { path, target: { keys, groups } } = this.attention;
    return (groups[keys.indexOf(key)] || []).map((i) => path[i]);
  }

  // The places of the row and the column that are pointed at; -1 for none.
  pointedAt(rows, columns) {
    const [row, ...others] = this.hovered;
    const column = others.length ? others[0] : row;
    return [rows.keys.indexOf(row), columns.keys.indexOf(column)];
  }

  // Attributes of an element that is pointed at, or has the focus.
  hovering(enter) {
    const leave = () => this.hover([]);
    return {
      onpointerenter: enter, onpointerleave: leave,
      onfocusin: enter, onfocusout: leave,
    };
  }

  // Attributes of an element that stands for a node, or for the way to it.
  pointing(node, nodes = [node]) {
    if (!node) return {};
    const enter = () => {
      const { path, target: { keys, groups } } = this.attention;
      const own = path[node.step] === node;
      const i = groups.findIndex((group) => own && group.includes(node.step));
      this.hover(i < 0 ? [] : [keys[i]], nodes);
    };
    return { "data-key": nodeKey(node), ...this.hovering(enter) };
  }
}

function nodeKey(node) {
  return `n${node.number}`;
}

// Whether nothing but viewers is on the page, as `page.document` makes it.
function isOwnPage() {
  return document.body.matches(".keras-transformer-page");
}

const NOTES = [
  () => [
    "Attention is not an explanation: other weights can lead to the same " +
      "output (",
    reference("Jain & Wallace, 2019", "https://arxiv.org/abs/1902.10186"),
    "), though they are not without meaning either (",
    reference("Wiegreffe & Pinter, 2019", "https://arxiv.org/abs/1908.04626"),
    ").",
  ],
  () => ["Weights are kept as 8-bit numbers: none is wrong by more than " +
    "1/510. For words, the columns of their pieces are added and the rows " +
    "averaged. Where the end token is hidden, rows add up to less than 1."],
  () => ["A score is the log-probability in nats, divided by ((5 + tokens) / " +
    "6) to the power of the length penalty; the end token counts."],
];

function reference(text, address) {
  return h("a", { href: address, rel: "noreferrer" }, text);
}

// Dark if the notebook is, or else what the reader's system asks for.
function theme() {
  const { body, documentElement } = document;
  const notebook = body && body.dataset.jpThemeLight;
  if (notebook) return notebook === "false" ? "dark" : "light";
  if (body && body.matches(".vscode-dark, .vscode-high-contrast")) {
    return "dark";
  }
  if (documentElement.getAttribute("theme") === "dark") return "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

// What the root holds without scripts stays until the data are there.
async function start(root) {
  root.dataset.started = "";
  const facts = JSON.parse(
    root.querySelector('script[type="application/json"]').textContent);
  const buffer = await unpacked(
    root.querySelector('script[type="text/plain"]').textContent);
  const shadow = root.attachShadow({ mode: "open" });
  viewers.push(new Viewer(shadow, new Data(facts, buffer)));
}

document.querySelectorAll(
  ".keras-transformer-viewer:not([data-started])").forEach(start);
