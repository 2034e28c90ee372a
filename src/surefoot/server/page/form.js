/**
 * A form made from a JSON schema: `schemaForm(schema)` gives its element and `value()`, which throws an Error for people
 * where something is not filled in right. What a form cannot show is asked for as JSON; the server checks all of it.
 */

import { stringifyExact } from "./client.js";
import { h } from "./dom.js";
import { field } from "./parts.js";
import { visible } from "./visible.js";
import { t } from "./words.js";

const CHOICES_AS_RADIOS_MAX = 7;
const DEPTH_MAX = 4;
let groups = 0;

/** `label` stands above a schema without a title. */
export function schemaForm(schema, label = t("form.answer")) {
  return part(typeof schema === "object" && schema !== null ? schema : {}, label, true, 0);
}

function part(schema, label, needed, depth) {
  const given = { label: schema.title ? visible(String(schema.title)) : label, hint: schema.description && visible(String(schema.description)), needed };
  const kind = Array.isArray(schema.type) ? schema.type.find((type) => type !== "null") : schema.type;
  if ("const" in schema) return choice([schema.const], given);
  if (Array.isArray(schema.enum)) return choice(schema.enum, given);
  if (Array.isArray(schema.oneOf) && schema.oneOf.every((one) => "const" in one)) {
    return choice(schema.oneOf.map((one) => one.const), given, schema.oneOf.map((one) => one.title));
  }
  if (kind === "boolean") return choice([true, false], given, [t("form.yes"), t("form.no")]);
  if (kind === "string") return textual(schema, given);
  if (kind === "integer" || kind === "number") return numeric(schema, given, kind);
  if (kind === "array") return listed(schema, given);
  if (kind === "object" && schema.properties && depth < DEPTH_MAX) return grouped(schema, given, depth);
  return raw(given);
}

function named(value) {
  return typeof value === "string" ? visible(value) : stringifyExact(value);
}

function choice(values, { label, hint, needed }, titles = []) {
  const texts = values.map((value, index) => titles[index] ?? named(value));
  if (values.length > CHOICES_AS_RADIOS_MAX) {
    const options = texts.map((text, index) => h("option", { value: index }, text));
    const select = h("select", { required: needed }, h("option", { value: "" }, t("form.none")), options);
    return { element: field(label, select, { hint, optional: !needed }), value: () => (select.value === "" ? undefined : values[Number(select.value)]) };
  }
  const name = `choice-${(groups += 1)}`;
  const inputs = values.map((_, index) => h("input", { type: "radio", name, value: index, required: needed }));
  const lines = inputs.map((input, index) => h("label", { class: "choice" }, input, h("span", {}, texts[index])));
  const legend = h("legend", {}, label, needed ? null : h("span", { class: "quiet" }, ` (${t("action.optional")})`));
  const element = h("fieldset", { class: "choices" }, legend, hint ? h("p", { class: "hint" }, hint) : null, lines);
  return { element, value: () => values[inputs.findIndex((input) => input.checked)] };
}

const INPUT_TYPES = { date: "date", email: "email", uri: "url", time: "time" };

function textual(schema, { label, hint, needed }) {
  const type = INPUT_TYPES[schema.format];
  const attributes = { required: needed, minlength: schema.minLength, maxlength: schema.maxLength };
  const control = type
    ? h("input", { type, ...attributes })
    : h("textarea", { rows: (schema.maxLength ?? 1_000) > 120 ? 3 : 1, ...attributes });
  control.value = typeof schema.default === "string" ? schema.default : "";
  const value = () => (control.value === "" && !needed ? undefined : control.value);
  return { element: field(label, control, { hint, optional: !needed }), value };
}

function numeric(schema, { label, hint, needed }, kind) {
  const limits = { min: schema.minimum, max: schema.maximum, step: kind === "integer" ? 1 : "any" };
  const control = h("input", { type: "number", inputmode: kind === "integer" ? "numeric" : "decimal", required: needed, ...limits });
  if (typeof schema.default === "number") control.value = String(schema.default);
  function value() {
    if (control.value === "") return undefined;
    const number = Number(control.value);
    return kind === "integer" && !Number.isSafeInteger(number) ? BigInt(control.value) : number;
  }
  return { element: field(label, control, { hint, optional: !needed }), value };
}

function listed(schema, given) {
  const items = schema.items ?? {};
  if (Array.isArray(items.enum)) return several(items.enum, given);
  if (items.type !== "string") return raw(given);
  const control = h("textarea", { rows: 4, required: given.needed });
  const hint = [given.hint, t("form.lines")].filter(Boolean).join(" · ");
  const value = () => control.value.split("\n").map((line) => line.trim()).filter(Boolean);
  return { element: field(given.label, control, { hint, optional: !given.needed }), value };
}

function several(values, { label, hint }) {
  const inputs = values.map((_, index) => h("input", { type: "checkbox", value: index }));
  const lines = inputs.map((input, index) => h("label", { class: "choice" }, input, h("span", {}, named(values[index]))));
  const element = h("fieldset", { class: "choices" }, h("legend", {}, label), hint ? h("p", { class: "hint" }, hint) : null, lines);
  return { element, value: () => values.filter((_, index) => inputs[index].checked) };
}

function grouped(schema, { label, hint }, depth) {
  const required = new Set(schema.required ?? []);
  // Names come in the order of the alphabet: what is needed stands first, as the schema lists it.
  const rank = (name) => (required.has(name) ? [...required].indexOf(name) : required.size);
  const named = Object.entries(schema.properties).sort(([a], [b]) => rank(a) - rank(b));
  const parts = named.map(([name, of]) => [name, part(of ?? {}, visible(name), required.has(name), depth + 1)]);
  const element = h("fieldset", { class: "group" }, h("legend", {}, label), hint ? h("p", { class: "hint" }, hint) : null, parts.map(([, one]) => one.element));
  function value() {
    const all = parts.map(([name, one]) => [name, one.value()]);
    return Object.fromEntries(all.filter(([, each]) => each !== undefined));
  }
  return { element, value };
}

function raw({ label, hint, needed }) {
  const control = h("textarea", { rows: 4, required: needed, spellcheck: "false", class: "mono" });
  function value() {
    if (control.value.trim() === "") return undefined;
    try {
      return JSON.parse(control.value);
    } catch (problem) {
      throw new Error(t("form.bad_json", { problem: problem.message }));
    }
  }
  return { element: field(label, control, { hint: [hint, t("form.json")].filter(Boolean).join(" · "), optional: !needed }), value };
}
