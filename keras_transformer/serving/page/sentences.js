// The sentences of a text: which one is looked at, and where words light up.

import { later, never } from "./later.js";
import {
  Mirror, WordList, element, wordElements, wordPlaces,
} from "./words.js";

const STILL = 300; // Milliseconds that the caret rests in a sentence.
const REST = 120; // And the pointer, before its words are asked for.
const SLOW = 300; // And without an answer before the page says so.
const REMEMBERED = 500; // Sentences whose words are kept.

const byId = (id) => document.getElementById(id);

export class Sentences {
  // `text` is what they are the sentences of, while `field` is written on.
  constructor(server) {
    this.server = server;
    this.card = {};
    this.text = "";
    this.all = [];
    this.chosen = 0;
    this.known = new Map(); // By tagged source.
    this.terms = {}; // What words become.
    this.field = byId("text");
    this.output = byId("translation");
    this.mirror = new Mirror(this.field, byId("mirror"));
    this.sourceWords = new WordList(
      byId("source-words"), "Words of the text");
    this.targetWords = new WordList(
      byId("target-words"), "Words of the translation");
    this.listen();
  }

  listen() {
    const step = (by) => () => this.choose(this.chosen + by, true);
    byId("previous").addEventListener("click", step(-1));
    byId("next").addEventListener("click", step(1));
    document.addEventListener("selectionchange", () => later(
      "caret", STILL, () => this.followCaret()));
    this.output.addEventListener("click", ({ target }) => {
      const span = target.closest(".sentence");
      if (span && getSelection().isCollapsed) {
        this.choose(Number(span.dataset.sentence));
      }
    });
    for (const each of [this.output, byId("words")]) {
      each.addEventListener("pointerover", ({ target }) => this.over(target));
      each.addEventListener("focusin", ({ target }) => this.over(target));
      each.addEventListener("pointerleave", () => this.dim());
      each.addEventListener("focusout", () => this.dim());
    }
  }

  // Other terms: all that is known was found with those of before.
  take(terms) {
    this.known.clear();
    Object.assign(this, { terms, text: null });
  }

  get isStale() {
    return this.field.value !== this.text;
  }

  get atCaret() {
    return Math.max(0, this.all.findLastIndex(
      (sentence) => sentence.start <= this.field.selectionStart));
  }

  // A sentence with the tag of the text, which tells a model of several
  // languages which one to write.
  tagged({ source }) {
    const tag = /^\s*>>[^<>\s]+<<\s*/.exec(this.text)?.[0] ?? "";
    return tag + source;
  }

  span(sentence) {
    return this.output.querySelector(
      `.sentence[data-sentence="${sentence.number}"]`);
  }

  show(text, sentences) {
    Object.assign(this, { text, all: sentences });
    const isWriting = document.activeElement === this.field;
    this.choose(isWriting ? this.atCaret : this.chosen);
  }

  followCaret() {
    if (document.activeElement !== this.field || this.isStale) return;
    if (this.atCaret !== this.chosen) this.choose(this.atCaret);
  }

  async choose(place, reveal = false) {
    const last = this.all.length - 1;
    this.chosen = Math.max(0, Math.min(place, last));
    const sentence = this.all[this.chosen], closer = byId("closer");
    never("looking");
    if (!sentence) {
      this.server.drop("chosen");
      closer.hidden = true;
      return;
    }
    closer.classList.add("stale");
    later("looking", SLOW, () => this.wait());
    this.output.querySelector(".chosen")?.classList.remove("chosen");
    if (last > 0) this.span(sentence)?.classList.add("chosen");
    byId("steps").hidden = last === 0;
    byId("place").textContent = `${(this.chosen + 1).toLocaleString("en")} of ${
      (last + 1).toLocaleString("en")}`;
    // Disabled, a button would lose the focus.
    byId("previous").ariaDisabled = String(this.chosen === 0);
    byId("next").ariaDisabled = String(this.chosen === last);
    if (reveal) this.reveal(sentence);
    await this.know(sentence, "chosen");
    if (this.all[this.chosen] === sentence) this.look(sentence);
  }

  reveal(sentence) {
    this.mark(sentence);
    this.mirror.reveal();
    this.span(sentence)?.scrollIntoView({ block: "nearest" });
  }

  // Asks for the best translations of a sentence and its words.
  async know(sentence, channel) {
    const text = this.tagged(sentence);
    if (!this.known.has(text)) {
      const body = { text, n_best: this.card.n_best, alignment: true,
        terms: this.terms };
      // What is refused stays unknown; the translation is there.
      const answer = await this.server.ask(channel, "api/translate", body)
        .catch(() => ({ sentences: [] }));
      if (answer?.sentences.length !== 1) return;
      if (this.known.size >= REMEMBERED) this.known.clear();
      this.known.set(text, answer.sentences[0]);
    }
    const found = this.known.get(text);
    if (found.hypotheses[0]?.text !== sentence.target) {
      this.known.delete(text); // Of another version of the model.
      return;
    }
    sentence.hypotheses = found.hypotheses;
    sentence.words = found.words;
    sentence.texts = { source: found.source_words, target: found.target_words };
    const span = this.span(sentence);
    if (sentence.words && span && !span.querySelector(".word")) {
      span.replaceChildren(
        ...wordElements(sentence.target, sentence, "target"));
    }
  }

  // Shows that something is to come, beside what there was.
  wait() {
    const closer = byId("closer");
    closer.classList.toggle("bare", closer.hidden);
    closer.hidden = byId("looking").hidden = false;
  }

  look(sentence) {
    never("looking");
    byId("looking").hidden = true;
    this.sourceWords.show(sentence.source, sentence, "source");
    this.targetWords.show(sentence.target, sentence, "target");
    byId("words-note").hidden = !sentence.words?.length;
    byId("hypotheses").replaceChildren(
      ...sentence.hypotheses.map(({ text, score }) => element("tr", {}, [
        element("td", {
          textContent: text || "(empty)",
          dir: byId("translation").dir || "auto",
        }),
        element("td", {
          textContent: score?.toFixed(3) ?? "−∞", className: "number",
        }),
      ])));
    const query = new URLSearchParams({ text: this.tagged(sentence) });
    byId("explain").href = `explain?${query}`;
    byId("explain").hidden = !this.card.explain;
    byId("closer").classList.remove("stale", "bare");
    byId("closer").hidden = false;
  }

  over(target) {
    const word = target.closest(".word"), span = target.closest(".sentence");
    never("rest");
    this.dim();
    if (word) {
      this.light(word);
    } else if (span) {
      const sentence = this.all[span.dataset.sentence];
      this.mark(sentence);
      later("rest", REST, () => this.know(sentence, "pointer"));
    }
  }

  light(word) {
    const sentence = this.all[word.dataset.sentence];
    const lit = sentence?.lit(word.dataset.side, Number(word.dataset.index));
    if (!lit) return;
    for (const each of document.querySelectorAll(
      `.word[data-sentence="${sentence.number}"]`)) {
      const { side, index } = each.dataset;
      each.classList.toggle("lit", lit[side].includes(Number(index)));
    }
    this.mark(sentence, lit.source);
  }

  // Marks a sentence in the text that is written, and words of it.
  mark(sentence, words = []) {
    if (this.isStale) return;
    const { start, end } = sentence;
    const places = wordPlaces(
      this.text.slice(start, end), sentence.texts.source);
    this.mirror.show({
      start,
      end,
      isOneOfMany: this.all.length > 1,
      words: places.filter((_, i) => words.includes(i)),
    });
  }

  dim() {
    for (const each of document.querySelectorAll(".lit")) {
      each.classList.remove("lit");
    }
    this.mirror.show();
  }
}
