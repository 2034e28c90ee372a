/**
 * Text of models, tools and strangers, as it may be shown: hidden and bidirectional characters stand as ⟦U+202E⟧.
 * The same rule as the server's own (core/visible.py), which previews of questions have gone through already.
 */

import { h } from "./dom.js";

const HIDDEN =
  /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\u{e0100}-\u{e01ef}]|\u27e6/gu;
const ESCAPE = /\u27e6U\+[0-9A-F]{4,6}\u27e7/g;
const SYMBOL = /^[\p{So}\p{Sk}\p{Sm}\u00a9\u00ae]$/u;

function escaped(character) {
  return `\u27e6U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e7`;
}

function isPartOfEmoji(text, place, character) {
  const before = [...text.slice(Math.max(place - 2, 0), place)].at(-1) ?? "";
  const after = [...text.slice(place + character.length, place + character.length + 2)][0] ?? "";
  if (character === "\ufe0f") return SYMBOL.test(before) || /^[#*0-9]$/.test(before);
  return character === "\u200d" && (SYMBOL.test(before) || before === "\ufe0f") && SYMBOL.test(after);
}

/** `text` with every hidden character as an escape. */
export function visible(text) {
  return text.replace(HIDDEN, (character, place) =>
    character === "\n" || character === "\t" || isPartOfEmoji(text, place, character) ? character : escaped(character),
  );
}

/** Nodes for a text whose hidden characters are escapes already, the escapes marked. */
export function marked(text) {
  const out = [];
  let place = 0;
  for (const match of text.matchAll(ESCAPE)) {
    out.push(text.slice(place, match.index), h("mark", { class: "hidden-character" }, match[0]));
    place = match.index + match[0].length;
  }
  out.push(text.slice(place));
  return out.filter((part) => part !== "");
}

/** Nodes for any text. */
export function shown(text) {
  return marked(visible(String(text ?? "")));
}
