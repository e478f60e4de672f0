// What the model says of itself.

import { element } from "./words.js";

export const number = (value) => value.toLocaleString("en");

// Terms and what is said of them: texts or elements.
function facts(card) {
  const found = [];
  if (card.source_lang) {
    found.push(["Languages", [`${card.source_name} to ${card.target_name}`]]);
  }
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

export function showCard(card, section) {
  section.querySelector("dl").replaceChildren(
    ...facts(card).map(([term, said]) => element("div", {}, [
      element("dt", { textContent: term }),
      element("dd", {}, said),
    ])));
  section.hidden = false;
}
