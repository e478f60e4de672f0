// Elements, numbers and colours. Text goes in as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null));
  return element;
}

function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// A piece or a text whose direction does not touch what stands beside it.
function isolated(text, lang) {
  return h("bdi", { dir: "auto", lang }, text);
}

function quoted(text, lang) {
  return ["“", isolated(text, lang), "”"];
}

// By the first letter.
function direction(text) {
  const letter = /\p{L}/u.exec(text);
  const right = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]|\p{Script=Adlam}/u;
  return letter && right.test(letter[0]) ? "rtl" : "ltr";
}

// Attributes of a row of pieces that spell a text. A browser's own "auto" does
// not look into isolated pieces.
function laidOut({ lang, dir }, text) {
  return { lang, dir: dir === "auto" ? direction(text) : dir };
}

// The key that goes the same way where text comes from the left.
function alongText(element, key) {
  if (getComputedStyle(element).direction !== "rtl") return key;
  return { ArrowLeft: "ArrowRight", ArrowRight: "ArrowLeft" }[key] || key;
}

function fixed(value, digits = 3) {
  if (value === null) return "−∞";
  return value.toFixed(digits).replace("-", "−");
}

function shortened(text, longest) {
  const characters = [...text];
  return characters.length > longest
    ? `${characters.slice(0, longest - 1).join("")}…` : text;
}

// The head of a table; `numbers` are the places of columns of numbers.
function tableHead(names, numbers) {
  return h("thead", {}, h("tr", {}, names.map((name, i) => h("th", {
    scope: "col", class: numbers.includes(i) ? "number" : null,
  }, name))));
}

// Radio buttons that look like one row of buttons. `choices`: [value, label].
function choice(legend, choices, chosen, choose) {
  const name = legend.replaceAll(" ", "-");
  return h("fieldset", { class: "choice" },
    h("legend", {}, legend),
    choices.map(([value, label]) => h("label", {},
      h("input", {
        type: "radio", name, value: String(value), checked: value === chosen,
        onchange: () => choose(value),
      }),
      h("span", {}, label))));
}

function checkbox(label, checked, change) {
  return h("label", { class: "check" },
    h("input", {
      type: "checkbox", checked, onchange: (event) =>
        change(event.target.checked),
    }), label);
}

// One tab stop for many buttons; arrow keys go among them. `next(button, key)`
// says where to, `arrive` is called with it.
function roving(container, next, arrive) {
  container.addEventListener("keydown", (event) => {
    const to = event.key.startsWith("Arrow") && next(event.target, event.key);
    if (!to) return;
    event.preventDefault();
    stopAt(container, to);
    to.focus();
    if (arrive) arrive(to);
  });
}

function stopAt(container, element) {
  container.querySelectorAll('[tabindex="0"]').forEach(
    (other) => other.setAttribute("tabindex", "-1"));
  if (element) element.setAttribute("tabindex", "0");
}

// Okabe and Ito's colours; the last is the text's.
const HEADS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9",
  "#d55e00", "#f0e442", "currentColor"];

function headLabel(head) {
  return head === ALL ? "mean of all heads" : `head ${head + 1}`;
}

// Of the lines of a head; the ninth has the first one's colour, in dashes.
function headLine(head) {
  if (head === ALL) return { stroke: "#6a737d" };
  return {
    stroke: HEADS[head % HEADS.length],
    "stroke-dasharray": head < HEADS.length ? null : "5 3",
  };
}

// Which head has which line.
function headKeys(heads) {
  return h("span", { class: "keys" }, heads.map(({ name, look }) => h("span",
    {}, s("svg", { width: 18, height: 10, "aria-hidden": "true" },
      s("line", { x1: 0, x2: 18, y1: 5, y2: 5, "stroke-width": 4, ...look })),
    ` ${name}`)));
}

// From 0 to 1: one hue towards ink on paper; cividis on a dark page.
const RAMPS = {
  light: ["#ffffff", "#deebf7", "#a9cfe8", "#5ba3d0", "#2071b4", "#08306b"],
  dark: ["#12161c", "#16345f", "#4b576d", "#7d7c78", "#b9ac70", "#ffea46"],
};

// 256 colours [r, g, b] of a ramp.
function ramp(theme) {
  const stops = RAMPS[theme].map((colour) => [1, 3, 5].map(
    (i) => parseInt(colour.slice(i, i + 2), 16)));
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    return stops[low].map((part, k) => Math.round(
      part + (at - low) * (stops[low + 1][k] - part)));
  });
}

// The square root shows small weights; the legend has the same scale.
function shade(colours, weight) {
  return colours[Math.round(255 * Math.sqrt(Math.min(1, weight)))];
}

// A matrix as a picture, one pixel for each weight.
function pixels(values, rows, columns, colours) {
  const canvas = h("canvas", { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  values.forEach((value, i) => {
    image.data.set([...shade(colours, value), 255], 4 * i);
  });
  context.putImageData(image, 0, 0);
  return canvas;
}
