// Translates as one types.

import { Refusal, Server } from "./asking.js";
import { later, never } from "./later.js";
import { Sentences } from "./sentences.js";
import { Sentence, element } from "./words.js";

const STILL = 300; // Milliseconds without a key before a text is sent.
const SLOW = 300; // And without an answer before the page says so.
// Without a change before a screen reader is told, or a text sent that an input
// method composes: half a word of Japanese, but whole ones on a telephone.
const CALM = 1000;

const byId = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en");
const field = byId("text"), output = byId("translation");
const server = new Server({
  onWait: (kind, seconds) => {
    const why = kind === "busy" ? "The server is busy."
      : "The server does not answer.";
    const again = number(Math.max(1, Math.round(seconds)));
    say(`${why} Your text is kept; trying again in ${again} s.`, true);
  },
  onBack: () => say(""),
});
const sentences = new Sentences(server);
let card = {};

// A line for all; a screen reader need not hear of every attempt.
function say(message, canRetry = false) {
  never("slow");
  byId("status").textContent = message;
  byId("again").hidden = !canRetry;
  announce(message.replace(/;.*/, "."));
}

function announce(message, lang = "en") {
  later("announcement", CALM, () => {
    const live = byId("announcement");
    live.lang = lang;
    if (live.textContent !== message) live.textContent = message;
  });
}

// The text outlives the page in its tab, so that loading it again, as people do
// when a server is away, loses nothing. Another path may be another model's.
const KEPT = `keras-transformer text ${location.pathname}`;

function keep() {
  try {
    sessionStorage.setItem(KEPT, field.value);
  } catch { /* Too long for it, or forbidden. */ }
}

function kept() {
  try {
    return sessionStorage.getItem(KEPT) ?? "";
  } catch {
    return "";
  }
}

function changed(event) {
  keep();
  sentences.mirror.show();
  output.classList.toggle("stale", sentences.isStale);
  const isTooLong = count();
  if (field.value.trim() && !isTooLong) {
    later("still", event?.isComposing ? CALM : STILL, translate);
    return;
  }
  never("still");
  server.drop("text");
  say(isTooLong ? "The text is too long for one request; shorten it." : "");
  if (!isTooLong) show(field.value, { sentences: [], translation: "" });
}

const question = (text) => (
  { text, n_best: null, alignment: false, terms: sentences.terms });

// What words become, from lines such as "lamp = Leuchte".
function readTerms() {
  // Keyboards for Chinese and Japanese write the wide sign, tables a tab.
  const lines = byId("terms").value.split("\n");
  sentences.take(Object.fromEntries(lines
    .map((line) => line.split(/[=＝\t](.*)/).map((side) => side.trim()))
    .map(([source, wanted = ""]) => [source, wanted])
    .filter(([source]) => source)));
  changed();
}

// Writes how long the text is; whether it is too long for a request.
function count() {
  const text = field.value, limits = card.limits;
  const body = JSON.stringify(question(text));
  const bytes = new TextEncoder().encode(body).length;
  const characters = [...text].length;
  const unit = characters === 1 ? "character" : "characters";
  // How many sentences there are is known once they are translated.
  const share = limits && 100 * Math.max(bytes / limits.max_body_bytes,
    sentences.all.length / limits.max_texts);
  const ofLimit = share < 1 ? "less than 1 %" : `${number(Math.ceil(share))} %`;
  const isTooLong = bytes > limits?.max_body_bytes;
  byId("counter").textContent = `${number(characters)} ${unit}` +
    (limits && text ? `, ${ofLimit} of the limit` : "");
  byId("counter").classList.toggle("over", isTooLong);
  return isTooLong;
}

async function translate() {
  const text = field.value;
  if (!sentences.isStale) { // Back to what is translated already.
    server.drop("text");
    say("");
    return;
  }
  if (byId("again").hidden) later("slow", SLOW, () => say("Translating …"));
  try {
    const answer = await server.ask("text", "api/translate", question(text));
    if (!answer) return;
    say("");
    show(text, answer);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    say(error.message);
  }
}

function show(text, answer) {
  const found = ofAnswer(text, answer);
  output.replaceChildren(...inPlace(answer.translation, found));
  sentences.show(text, found);
  output.classList.toggle("stale", sentences.isStale);
  count();
  byId("copy").hidden = !answer.translation;
  if (answer.translation.length > 300) {
    announce(`${number(found.length)} sentences are translated.`);
  } else if (answer.translation) {
    announce(answer.translation, card.target_lang);
  }
}

// Python counts code points, a browser UTF-16 units.
function ofAnswer(text, answer) {
  const starts = [];
  let at = 0;
  for (const character of text) {
    starts.push(at);
    at += character.length;
  }
  const unit = (index) => starts[index] ?? text.length;
  return answer.sentences.map((each, i) => new Sentence(
    i, { ...each, start: unit(each.start), end: unit(each.end) }));
}

// The translation with an element for each sentence.
function inPlace(translation, found) {
  const parts = [];
  let end = 0;
  for (const sentence of found) {
    const from = translation.indexOf(sentence.target, end);
    if (from < 0) continue;
    parts.push(translation.slice(end, from), sentence.element());
    end = from + sentence.target.length;
  }
  return [...parts, translation.slice(end)];
}

async function copy() {
  try {
    await navigator.clipboard.writeText(output.textContent);
  } catch { // Not over plain HTTP from another machine.
    getSelection().selectAllChildren(output);
    document.execCommand("copy");
    getSelection().removeAllRanges();
  }
  byId("copy").textContent = "Copied";
  announce("The translation is copied.");
  later("copied", 2000, () => { byId("copy").textContent = "Copy"; });
}

// A text from the right may begin with a number; any other tells by itself.
function direction(known) {
  return known === "rtl" ? known : "auto";
}

function introduce() {
  const { source_name: source, target_name: target } = card;
  byId("title").textContent = document.title = `${source} to ${target}`;
  byId("model").textContent = `${card.name}, version ${card.version}`;
  byId("source-name").textContent = source;
  byId("target-name").textContent = target;
  for (const id of ["text", "mirror", "source-words"]) {
    byId(id).lang = card.source_lang;
    byId(id).dir = direction(card.source_dir);
  }
  for (const id of ["translation", "target-words"]) {
    byId(id).lang = card.target_lang;
    byId(id).dir = direction(card.target_dir);
  }
  // Each text of it has a direction: the table's columns stay where they are.
  byId("hypotheses").lang = card.target_lang;
  byId("card").querySelector("dl").replaceChildren(
    ...facts().map(([term, said]) => element("div", {}, [
      element("dt", { textContent: term }),
      element("dd", {}, said),
    ])));
  byId("card").hidden = false;
  byId("glossary").hidden = !card.terms;
  const { subject, examples } = card;
  byId("examples").hidden = !subject;
  byId("subject").textContent = `This model has seen ${subject}. Try one:`;
  byId("examples").append(...(examples ?? []).map((text) => element("button", {
    type: "button",
    textContent: text,
    lang: card.source_lang,
    dir: direction(card.source_dir),
    onclick: () => write(text),
  })));
}

// What the model says of itself: terms, and texts or elements for each.
function facts() {
  const languages = `${card.source_name} to ${card.target_name}`;
  const found = [["Languages", [languages]]];
  if (card.parameters) {
    found.push(["Parameters", [number(card.parameters)]]);
  }
  for (const score of card.scores ?? []) {
    const on = [score.corpus, score.split].filter(Boolean).join(", ");
    found.push([score.name, [
      `${score.value.toFixed(1)}${on ? ` on ${on}` : ""}`,
      ...(score.signature
        ? [element("code", { textContent: score.signature })] : []),
    ]]);
  }
  const { limits } = card;
  const bounds = [
    limits?.max_source_length &&
      `${number(limits.max_source_length)} word pieces a sentence`,
    limits?.max_texts && `${number(limits.max_texts)} sentences a text`,
    limits?.max_body_bytes && `${number(limits.max_body_bytes)} bytes a text`,
  ].filter(Boolean);
  if (bounds.length) found.push(["Limits", [bounds.join(", ")]]);
  return found;
}

// As if it were typed: undoing brings back what was there before.
function write(text) {
  field.focus();
  field.select();
  document.execCommand("insertText", false, text);
}

async function start() {
  document.documentElement.classList.add("scripted");
  field.rows = 1; // It grows with what lies behind it.
  field.value ||= kept();
  sentences.mirror.show();
  count();
  field.addEventListener("input", changed);
  byId("form").addEventListener("submit", (event) => event.preventDefault());
  byId("again").addEventListener("click", () => server.retry());
  byId("copy").addEventListener("click", copy);
  byId("terms").addEventListener("input", () => later("terms", STILL, readTerms));
  window.addEventListener("online", () => server.retry());
  try {
    card = sentences.card = await server.ask("card", "api/card");
    introduce();
    count();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    say(error.message);
  }
  if (field.value && sentences.isStale) changed();
}

start();
