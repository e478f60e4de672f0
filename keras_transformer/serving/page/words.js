// Words that light up with what they come from. Texts go in as text.

export function element(name, properties = {}, children = []) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// A sentence of the answer: where it stands, its translation, and which words
// belong together once that is known.
export class Sentence {
  constructor(number, { source, start, end, hypotheses }) {
    Object.assign(this, { number, source, start, end, hypotheses });
    this.target = hypotheses[0]?.text ?? "";
    this.words = null;
    this.texts = {}; // The words of each side.
  }

  // Its translation, words in it once they are known.
  element() {
    const made = element(
      "span", { className: "sentence", textContent: this.target });
    made.dataset.sentence = this.number;
    return made;
  }

  // Words of the other side that belong to this one.
  linked(side, index) {
    const at = side === "source" ? 0 : 1;
    return (this.words ?? []).filter((pair) => pair[at] === index)
      .map((pair) => pair[1 - at]);
  }

  // Places of the words that light up with this one, for both sides.
  lit(side, index) {
    const others = this.linked(side, index);
    return side === "source" ? { source: [index], target: others }
      : { source: others, target: [index] };
  }
}

// Start and end of each of these words of a text, in order.
export function wordPlaces(text, words = []) {
  let end = 0;
  return words.map((word) => {
    const start = text.indexOf(word, end);
    end = start + word.length;
    return [start, end];
  });
}

// The text as elements for its words and plain text between them.
export function wordElements(text, sentence, side, properties) {
  const parts = [];
  let end = 0;
  wordPlaces(text, sentence.texts[side]).forEach(([from, to], index) => {
    const word = element("span", {
      className: "word",
      textContent: text.slice(from, to),
      ...properties?.(index, text.slice(from, to)),
    });
    Object.assign(word.dataset, { sentence: sentence.number, side, index });
    parts.push(text.slice(end, from), word);
    end = to;
  });
  return [...parts, text.slice(end)].filter((part) => part !== "");
}

// What lies behind the text being written: the same text, with marks.
export class Mirror {
  constructor(field, behind) {
    Object.assign(this, { field, behind });
  }

  // Only words within the sentence [start, end) are marked; `words` has their
  // places in it. The line break at the end gives the last line its height.
  show({ start = 0, end = 0, isOneOfMany = false, words = [] } = {}) {
    const text = this.field.value;
    const inside = text.slice(start, end), parts = [];
    let at = 0;
    for (const [from, to] of words) {
      parts.push(inside.slice(at, from),
        element("mark", { textContent: inside.slice(from, to) }));
      at = to;
    }
    parts.push(inside.slice(at));
    const sentence = element(
      "span", { className: isOneOfMany ? "soft" : "" }, parts);
    this.behind.replaceChildren(
      text.slice(0, start), sentence, `${text.slice(end)}\n`);
  }

  // Brings the sentence that is marked into view.
  reveal() {
    this.behind.querySelector("span").scrollIntoView({ block: "nearest" });
  }
}

// Words as one stop for the keyboard; arrow keys go from one to the next.
export class WordList {
  constructor(container, label) {
    this.container = container;
    container.setAttribute("role", "listbox");
    container.setAttribute("aria-orientation", "horizontal");
    container.setAttribute("aria-label", label);
    container.addEventListener("keydown", (event) => this.key(event));
    container.addEventListener("focusin", ({ target }) => this.stop(target));
  }

  show(text, sentence, side) {
    this.container.hidden = !text; // A list without words is none.
    const names = sentence.texts[side === "source" ? "target" : "source"] ?? [];
    this.container.replaceChildren(
      ...wordElements(text, sentence, side, (index, word) => {
        const from = sentence.linked(side, index).map((i) => names[i]);
        const ariaLabel = from.length ? `${word}: ${from.join(" ")}` : word;
        return { role: "option", tabIndex: index ? -1 : 0, ariaLabel };
      }));
  }

  get words() {
    return [...this.container.querySelectorAll(".word")];
  }

  stop(chosen) {
    for (const word of this.words) {
      word.tabIndex = word === chosen ? 0 : -1;
      word.ariaSelected = String(word === chosen);
    }
  }

  key(event) {
    const words = this.words, at = words.indexOf(event.target);
    const isRightToLeft = getComputedStyle(this.container).direction === "rtl";
    const step = isRightToLeft ? -1 : 1;
    const next = {
      ArrowRight: at + step,
      ArrowLeft: at - step,
      Home: 0,
      End: words.length - 1,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    words[Math.max(0, Math.min(next, words.length - 1))]?.focus();
  }
}
