// Translates as one types.

import { Refusal, Server } from "./asking.js";
import { number, showCard } from "./card.js";
import {
  Mirror, Sentence, WordList, wordElements, wordPlaces,
} from "./words.js";

const STILL = 300; // Milliseconds without a key before a text is sent.
const CALM = 1000; // And before a screen reader is told.
const REST = 120; // Of the pointer on a sentence.
const REMEMBERED = 500; // Sentences whose details are kept.

const byId = (id) => document.getElementById(id);
const field = byId("text"), output = byId("translation");
const mirror = new Mirror(field, byId("mirror"));
const sourceWords = new WordList(byId("source-words"), "Words of the text");
const targetWords = new WordList(
  byId("target-words"), "Words of the translation");

let card = {};
let shown = { text: "", sentences: [] }; // What `output` is the translation of.
let chosen = 0;
const details = new Map(); // By the source of a sentence.
const timers = {};

// Calls later; a later call takes the place of an earlier one.
function later(name, milliseconds, call) {
  clearTimeout(timers[name]);
  timers[name] = setTimeout(call, milliseconds);
}

const server = new Server({
  onWait: (kind, seconds) => {
    const why = kind === "busy" ? "The server is busy."
      : "The server does not answer.";
    const again = Math.max(1, Math.round(seconds));
    say(`${why} Your text is kept; trying again in ${again} s.`, true);
  },
  onBack: () => say(""),
});

function say(message, canRetry = false) {
  clearTimeout(timers.slow);
  byId("status").textContent = message;
  byId("again").hidden = !canRetry;
  // A screen reader need not hear of every attempt.
  announce(message.replace(/;.*/, "."));
}

function announce(message) {
  later("calm", CALM, () => {
    const live = byId("announcement");
    if (live.textContent !== message) live.textContent = message;
  });
}

// The text -----------------------------------------------------------------

const isStale = () => field.value !== shown.text;

function changed() {
  mirror.show();
  output.classList.toggle("stale", isStale());
  const isTooLong = count();
  if (isTooLong || !field.value.trim()) {
    clearTimeout(timers.still);
    server.drop("text");
    say(isTooLong ? "The text is too long for one request; shorten it." : "");
    if (!isTooLong) show({ sentences: [], translation: "" }, field.value);
  } else {
    later("still", STILL, translate);
  }
}

const asked = (text) => ({ text, n_best: null, alignment: false });

// Writes how long the text is; whether it is too long.
function count() {
  const text = field.value, most = card.limits?.max_body_bytes;
  const bytes = new TextEncoder().encode(JSON.stringify(asked(text))).length;
  const share = most && text ? Math.ceil((100 * bytes) / most) : 0;
  const characters = [...text].length;
  const unit = characters === 1 ? "character" : "characters";
  byId("counter").textContent = `${number(characters)} ${unit}` +
    (most ? `, ${number(share)} % of the limit` : "");
  byId("counter").classList.toggle("over", bytes > most);
  return bytes > most;
}

async function translate() {
  const text = field.value;
  if (!isStale()) return;
  if (byId("again").hidden) {
    later("slow", STILL, () => say("Translating …"));
  }
  try {
    const answer = await server.ask("text", "api/translate", asked(text));
    if (!answer) return;
    say("");
    show(answer, text);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    say(error.message);
  }
}

// Python counts code points, a browser UTF-16 units.
function units(text) {
  const starts = [];
  let at = 0;
  for (const character of text) {
    starts.push(at);
    at += character.length;
  }
  return (index) => starts[index] ?? text.length;
}

function show(answer, text) {
  const unit = units(text);
  const sentences = answer.sentences.map((each, i) => new Sentence(
    i, { ...each, start: unit(each.start), end: unit(each.end) }));
  shown = { text, sentences };
  output.replaceChildren(...inPlace(answer.translation, sentences));
  output.classList.toggle("stale", isStale());
  byId("copy").hidden = !answer.translation;
  if (answer.translation) {
    announce(answer.translation.length <= 300 ? answer.translation
      : `${number(sentences.length)} sentences are translated.`);
  }
  choose(document.activeElement === field ? atCaret() : chosen);
}

// The translation with an element for each sentence.
function inPlace(translation, sentences) {
  const parts = [];
  let end = 0;
  for (const sentence of sentences) {
    const from = translation.indexOf(sentence.target, end);
    if (from < 0) continue;
    const made = document.createElement("span");
    made.className = "sentence";
    made.dataset.sentence = sentence.number;
    made.textContent = sentence.target;
    parts.push(translation.slice(end, from), made);
    end = from + sentence.target.length;
  }
  return [...parts, translation.slice(end)];
}

// One sentence -------------------------------------------------------------

function atCaret() {
  const at = shown.sentences.findLastIndex(
    (sentence) => sentence.start <= field.selectionStart);
  return Math.max(0, at);
}

const spanOf = (sentence) => output.querySelector(
  `.sentence[data-sentence="${sentence.number}"]`);

async function choose(place, { reveal = false } = {}) {
  const { sentences } = shown, last = sentences.length - 1;
  chosen = Math.max(0, Math.min(place, last));
  const sentence = sentences[chosen];
  byId("closer").classList.toggle("stale", Boolean(sentence));
  if (!sentence) {
    server.drop("details");
    byId("closer").hidden = true;
    return;
  }
  output.querySelector(".chosen")?.classList.remove("chosen");
  if (last > 0) spanOf(sentence)?.classList.add("chosen");
  byId("place").textContent = `${number(chosen + 1)} of ${number(last + 1)}`;
  byId("previous").disabled = chosen === 0;
  byId("next").disabled = chosen === last;
  if (reveal) {
    mirror.show({ ...sentence, whole: true });
    mirror.reveal();
    spanOf(sentence)?.scrollIntoView({ block: "nearest" });
  }
  if (await know(sentence, "details")) look(sentence);
}

// Asks for a sentence's best translations and its words; false where a newer
// question came in between.
async function know(sentence, channel) {
  const { source } = sentence;
  if (!details.has(source)) {
    const body = { text: source, n_best: card.n_best ?? 4, alignment: true };
    const answer = await server.ask(channel, "api/translate", body)
      .catch((error) => ({ sentences: [], error }));
    if (!answer) return false;
    if (details.size >= REMEMBERED) details.clear();
    if (answer.sentences.length === 1) {
      details.set(source, answer.sentences[0]);
    }
  }
  const found = details.get(source);
  // Another version of the model may have come in between.
  if (found?.hypotheses[0]?.text === sentence.target) {
    sentence.hypotheses = found.hypotheses;
    sentence.words = found.words;
  } else {
    details.delete(source);
  }
  const span = spanOf(sentence);
  if (sentence.words && span && !span.querySelector(".word")) {
    span.replaceChildren(
      ...wordElements(sentence.target, sentence, "target"));
  }
  return true;
}

function look(sentence) {
  if (shown.sentences[chosen] !== sentence) return;
  const closer = byId("closer");
  sourceWords.show(sentence.source, sentence, "source");
  targetWords.show(sentence.target, sentence, "target");
  byId("hypotheses-body").replaceChildren(
    ...sentence.hypotheses.map(({ text, score }) => {
      const row = document.createElement("tr");
      const cells = [row.insertCell(), row.insertCell()];
      cells[0].textContent = text || "(empty)";
      cells[0].dir = "auto";
      cells[1].textContent = score?.toFixed(3) ?? "";
      cells[1].className = "number";
      return row;
    }));
  byId("words-note").textContent = sentence.words
    ? "Words light up with what they come from: point at one, or go through " +
      "them with the arrow keys."
    : "This model does not tell where words come from.";
  const query = new URLSearchParams({ text: sentence.source });
  byId("explain").href = `explain?${query}`;
  byId("explain").hidden = !card.explain;
  closer.classList.remove("stale");
  closer.hidden = false;
}

// Light --------------------------------------------------------------------

function light(word) {
  dim();
  const sentence = shown.sentences[word.dataset.sentence];
  if (!sentence) return;
  const lit = sentence.lit(word.dataset.side, Number(word.dataset.index));
  for (const each of document.querySelectorAll(
    `.word[data-sentence="${sentence.number}"]`)) {
    const { side, index } = each.dataset;
    each.classList.toggle("lit", lit[side].includes(Number(index)));
  }
  mark(sentence, lit.source);
}

// Marks a sentence in the text that is written, and words of it.
function mark(sentence, words = []) {
  if (isStale()) return;
  const places = wordPlaces(shown.text.slice(sentence.start, sentence.end));
  mirror.show({
    ...sentence,
    whole: shown.sentences.length > 1,
    words: [...words].sort((a, b) => a - b).map((i) => places[i])
      .filter(Boolean),
  });
}

function dim() {
  document.querySelectorAll(".lit").forEach(
    (each) => each.classList.remove("lit"));
  mirror.show();
}

function over({ target }) {
  const word = target.closest(".word"), span = target.closest(".sentence");
  clearTimeout(timers.rest);
  if (word) {
    light(word);
  } else if (span) {
    const sentence = shown.sentences[span.dataset.sentence];
    dim();
    mark(sentence);
    later("rest", REST, () => know(sentence, "pointer"));
  } else {
    dim();
  }
}

// What hands do ------------------------------------------------------------

async function copy() {
  const text = output.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // Not over plain HTTP from another machine.
    getSelection().selectAllChildren(output);
    document.execCommand("copy");
    getSelection().removeAllRanges();
  }
  byId("copy").textContent = "Copied";
  announce("The translation is copied.");
  later("copied", 2000, () => { byId("copy").textContent = "Copy"; });
}

async function start() {
  try {
    card = await server.ask("card", "api/card");
    introduce();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    say(error.message);
  }
  // A browser may have kept what was written before.
  if (field.value) changed();
}

function introduce() {
  const { source_name: source, target_name: target } = card;
  byId("title").textContent = document.title = `${source} to ${target}`;
  byId("model").textContent = `${card.name}, version ${card.version}`;
  byId("source-name").textContent = source;
  byId("target-name").textContent = target;
  for (const id of ["text", "mirror", "source-words"]) {
    byId(id).lang = card.source_lang;
  }
  for (const id of ["translation", "target-words", "hypotheses-body"]) {
    byId(id).lang = card.target_lang;
  }
  showCard(card, byId("card"));
  count();
}

document.documentElement.classList.add("scripted");
field.addEventListener("input", (event) => {
  if (!event.isComposing) changed();
});
field.addEventListener("compositionend", changed);
document.addEventListener("selectionchange", () => later("caret", STILL, () => {
  if (document.activeElement !== field || isStale()) return;
  if (atCaret() !== chosen) choose(atCaret());
}));
byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  translate();
});
byId("again").addEventListener("click", () => server.retry());
byId("copy").addEventListener("click", copy);
byId("previous").addEventListener(
  "click", () => choose(chosen - 1, { reveal: true }));
byId("next").addEventListener(
  "click", () => choose(chosen + 1, { reveal: true }));
output.addEventListener("click", ({ target }) => {
  const span = target.closest(".sentence");
  if (span && getSelection().isCollapsed) choose(Number(span.dataset.sentence));
});
for (const each of [output, byId("source-words"), byId("target-words")]) {
  each.addEventListener("pointerover", over);
  each.addEventListener("pointerleave", dim);
  each.addEventListener("focusin", over);
  each.addEventListener("focusout", dim);
}
window.addEventListener("online", () => server.retry());
start();
