// A viewer: what is looked at, and the views that show it.

const VIEWS = [Summary, Grid, Head, Steps, Tree, Figures];

class Viewer {
  constructor(root, data) {
    this.data = data;
    this.hovered = [];
    const best = data.leaves.length ? data.leaves[0] : -1;
    this.state = {
      leaf: best, step: 0, kind: best < 0 ? "encoder" : "cross",
      layer: data.layers - 1, head: ALL,
      words: false, hideEnd: false, look: "map", aligned: false,
      folded: data.nodes.length > MANY, word: Infinity,
      other: Math.min(1, data.heads - 1), theme: theme(), width: 0,
    };
    this.prepare();
    this.views = VIEWS.map((View) => new View(this));
    this.element = this.layout();
    root.append(h("style", {}, data.style), this.element);
    this.follow();
    this.render(new Set(Object.keys(this.state)));
  }

  layout() {
    this.theme = h("button", { type: "button", onclick: () => this.set({
      theme: this.state.theme === "dark" ? "light" : "dark",
    }) });
    const [summary, grid, head, ...others] = this.views.map(
      (view) => view.element);
    return h("div", { class: "viewer" },
      h("header", {},
        h("h1", {}, "Attention and beam search"),
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
    const changed = new Set(Object.keys(state).filter(
      (name) => state[name] !== this.state[name]));
    this.state = state;
    if (changed.size) this.render(changed);
  }

  prepare() {
    const { leaf, words, hideEnd } = this.state;
    this.attention = new Attention(this.data, leaf, { words, hideEnd });
    this.colours = ramp(this.state.theme);
  }

  render(changed) {
    if (["leaf", "words", "hideEnd"].some((name) => changed.has(name))) {
      this.hovered = [];
      this.prepare();
    }
    if (changed.has("theme")) {
      const { theme } = this.state;
      this.element.dataset.theme = theme;
      this.theme.textContent = theme === "dark" ? "Light page" : "Dark page";
      this.colours = ramp(this.state.theme);
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
    view.render(changed);
  }

  // Marks words in all views: [of a row, of a column], or one for both.
  hover(keys) {
    if (String(keys) === String(this.hovered)) return;
    this.hovered = keys;
    this.element.querySelectorAll(".hovered[data-key]").forEach(
      (element) => element.classList.remove("hovered"));
    for (const key of keys.filter(Boolean)) {
      this.element.querySelectorAll(`[data-key="${key}"]`).forEach(
        (element) => element.classList.add("hovered"));
    }
    this.near.forEach((view) => view.hover && view.hover());
  }

  isRow(key) {
    return key === this.hovered[0];
  }

  isColumn(key) {
    return key === this.hovered[this.hovered.length > 1 ? 1 : 0];
  }

  // Attributes of an element that stands for these words.
  hovering(keys) {
    return {
      onpointerenter: () => this.hover(keys),
      onpointerleave: () => this.hover([]),
      onfocus: () => this.hover(keys),
      onblur: () => this.hover([]),
    };
  }
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
  return new Viewer(shadow, new Data(facts, buffer));
}

document.querySelectorAll(
  ".keras-transformer-viewer:not([data-started])").forEach(start);
