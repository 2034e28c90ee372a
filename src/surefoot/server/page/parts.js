/** Small parts that several views are made of. */

import { h } from "./dom.js";
import { rendered } from "./markdown.js";
import { marked, shown, visible } from "./visible.js";
import { stateText, t } from "./words.js";

/** A run's or a step's state as a chip: a mark and words, never colour alone. */
export function chip(status, text) {
  return h("span", { class: `chip is-${status}` }, text ?? stateText(`run_${status}`));
}

/** An id or a hash, which may be long. */
export function code(text) {
  return h("code", { class: "code" }, shown(text));
}

/** A list of facts: [[name, content]]; those without content are left out. */
export function facts(pairs, kind = "facts") {
  const there = pairs.filter(([, content]) => content !== null && content !== undefined && content !== "");
  return h(
    "dl",
    { class: kind },
    there.map(([name, content]) => h("div", {}, h("dt", {}, name), h("dd", {}, content))),
  );
}

/** A link to somewhere outside, if it is one that may be followed; else its text. */
export function outside(url, text = url) {
  if (!/^https?:\/\//i.test(url ?? "")) return url || text ? h("span", {}, shown(text ?? url)) : null;
  return h("a", { href: url, rel: "noopener noreferrer", target: "_blank", class: "outside" }, shown(text));
}

/** A JSON value, indented. Integers keep all their digits. */
export function pretty(value) {
  const exact = (_, each) => {
    if (typeof each !== "bigint") return each;
    return JSON.rawJSON ? JSON.rawJSON(String(each)) : String(each);
  };
  return JSON.stringify(value, exact, 2);
}

/** A JSON value as a block. `escaped`: its hidden characters are escapes already. */
export function block(value, { escaped = false, label } = {}) {
  const text = typeof value === "string" ? value : pretty(value);
  const attributes = { class: "block", tabindex: "0", role: "group", "aria-label": label };
  return h("pre", attributes, escaped ? marked(text) : shown(text));
}

const MARKDOWN_NAMES = new Set(["body", "comment", "content", "description", "markdown", "message", "text"]);

function isMarkdown(name, value) {
  return typeof value === "string" && (MARKDOWN_NAMES.has(name) || value.includes("\n"));
}

/** The arguments of a call: short ones as facts, texts as Markdown source and rendering side by side. */
export function argumentsView(values, { escaped = false } = {}) {
  if (values === null || typeof values !== "object" || Array.isArray(values)) return block(values, { escaped });
  const entries = Object.entries(values);
  const short = entries.filter(([name, value]) => !isMarkdown(name, value));
  const names = (name) => (escaped ? marked(name) : shown(name));
  const one = (value) => {
    const text = typeof value === "string" ? value : pretty(value);
    return h("code", { class: "code" }, escaped ? marked(text) : shown(text));
  };
  return [
    short.length ? facts(short.map(([name, value]) => [names(name), one(value)]), "facts arguments") : null,
    entries.filter(([name, value]) => isMarkdown(name, value)).map(([name, value]) => sideBySide(name, value, escaped)),
  ];
}

function sideBySide(name, value, escaped) {
  const text = escaped ? value : visible(value);
  return h(
    "section",
    { class: "beside" },
    h("div", {}, h("p", { class: "small-title" }, `${name} · ${t("action.source")}`), block(text, { escaped: true, label: t("action.source") })),
    h("div", {}, h("p", { class: "small-title" }, t("action.rendering")), rendered(text)),
  );
}

/** A value that a tool gave or the model was told: a text as it is, anything else as JSON. */
export function valueView(value, label) {
  if (value === null || value === undefined) return null;
  return block(value, { label });
}

/** What went wrong, for people. */
export function problemBox(error) {
  return h("p", { class: "problem", role: "alert" }, shown(error.message || String(error)));
}

/** Show what a list leaves out since it cannot be read: [{id, run_id, message}]. Drawn anew only where it has changed. */
export function showUnreadable(place, rows) {
  const state = JSON.stringify(rows);
  if (place.dataset.state === state) return;
  place.dataset.state = state;
  if (rows.length === 0) return void place.replaceChildren();
  const line = (row) => h("li", {}, code(row.id), row.run_id === row.id ? null : [" (", code(row.run_id), ")"], " ", shown(row.message));
  place.replaceChildren(h("div", { class: "problem unreadable", role: "status" }, h("p", {}, h("strong", {}, t("page.unreadable"))), h("ul", {}, rows.map(line))));
}

/** Nothing is there: say so, and what would be. */
export function empty(title, hint) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), hint ? h("p", {}, hint) : null);
}

/** Say something to a person who does not look at the place where it changed. */
export function say(text) {
  document.getElementById("said").textContent = text;
}

/** A dialog that is gone once it is closed. */
export function openDialog(title, ...content) {
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": "dialog-title" });
  dialog.append(h("h2", { id: "dialog-title" }, title), ...content);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** A labelled field. `control` gets the id that the label names. */
let fields = 0;
export function field(label, control, { hint, optional = false } = {}) {
  const id = `field-${(fields += 1)}`;
  control.id = id;
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, label, optional ? h("span", { class: "quiet" }, ` (${t("action.optional")})`) : null),
    control,
    hint ? h("p", { class: "hint", id: `${id}-hint` }, hint) : null,
  );
}
