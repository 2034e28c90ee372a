/** One run as a timeline: what was said, and below each answer the calls that it led to, with their attempts and evidence. */

import { evidenceList } from "./action.js";
import { fill, fillByKey, folding, h } from "./dom.js";
import { clock } from "./format.js";
import { rendered } from "./markdown.js";
import { argumentsView, chip, code, facts, outside, valueView } from "./parts.js";
import { shown, visible } from "./visible.js";
import { t, word } from "./words.js";

/** Keeps the timeline's element true to what is known: {run, messages, queued, events, texts}. */
export class Timeline {
  element = h("ol", { class: "timeline" });
  #open = new Map();
  #drawn = new Map();

  show(known) {
    const items = itemsOf(known);
    fillByKey(
      this.element,
      items.map((item) => [item.key, () => h("li", { class: `item item-${item.kind}` })]),
    );
    const keys = new Set(items.map((item) => item.key));
    for (const key of this.#drawn.keys()) if (!keys.has(key)) this.#drawn.delete(key);
    items.forEach((item, index) => {
      if (this.#drawn.get(item.key) === item.state) return;
      this.#drawn.set(item.key, item.state);
      fill(this.element.children[index], this.#draw(item));
    });
    if (!items.length) fill(this.element, h("li", { class: "quiet", data: { key: "none" } }, t("run.no_items")));
  }

  #draw(item) {
    if (item.kind === "call") return callCard(item, this.#open);
    if (item.kind === "model") return modelLine(item);
    return message(item, this.#open);
  }
}

/** What stands in the timeline, in order: {key, kind, state} and what it is about. `state` changes with what is drawn. */
function itemsOf({ run, messages, queued, events, texts }) {
  const calls = callsByModelStep(run.steps);
  const results = new Map(messages.filter((each) => each.role === "tool_result").map((each) => [each.call_id, each]));
  const attempts = attemptsOf(events);
  const items = [];
  const drawn = new Set();
  const addCall = (step) => {
    drawn.add(step.id);
    const item = { step, result: results.get(step.call_id), attempts: attempts.get(step.id) ?? [] };
    items.push({ ...item, key: step.id, kind: "call", state: stateOf(item) });
  };
  for (const each of messages) {
    const own = each.run_id === run.id;
    if (each.role === "tool_result" && own && run.steps.some((step) => step.call_id === each.call_id)) continue;
    const ownCalls = each.role === "assistant" && own ? (calls.get(each.step_id) ?? []) : [];
    if (each.body.text || !ownCalls.length) items.push({ key: each.id, kind: each.role, message: each, listed: !ownCalls.length, state: each.id });
    if (each.role !== "assistant" || !own) continue;
    drawn.add(each.step_id);
    ownCalls.forEach(addCall);
  }
  for (const step of run.steps) {
    if (drawn.has(step.id)) continue;
    if (step.type !== "model_call") addCall(step);
    else if (step.status !== "succeeded" || step.purpose) items.push(modelItem(step, texts, attempts));
  }
  for (const each of queued) items.push({ key: each.id, kind: each.role, message: each, queued: true, state: `${each.id} queued` });
  return items;
}

function stateOf(value) {
  return JSON.stringify(value, (_, each) => (typeof each === "bigint" ? String(each) : each));
}

function modelItem(step, texts, attempts) {
  const written = texts.get(step.id);
  const item = { step, text: written?.text ?? "", attempts: attempts.get(step.id) ?? [] };
  return { ...item, key: `${step.id} model`, kind: "model", state: stateOf(item) };
}

/** The steps behind each model call, up to the next one. */
function callsByModelStep(steps) {
  const found = new Map();
  let model = null;
  for (const step of steps) {
    if (step.type === "model_call") model = step.id;
    else if (model !== null) found.set(model, [...(found.get(model) ?? []), step]);
  }
  return found;
}

/** The attempts of each step, from its events: [{number, at, account, end, code}]. */
function attemptsOf(events) {
  const found = new Map();
  for (const { type, step_id: id, at, data } of events) {
    if (!id) continue;
    const list = found.get(id) ?? [];
    if (type === "step_started") {
      found.set(id, [...list, { number: data.attempt, at, account: data.account ?? null, end: null, code: null }]);
      continue;
    }
    const attempt = list.find((each) => each.number === data.attempt);
    if (attempt === undefined) continue;
    const end = data.end ?? { step_outcome_unknown: "in_doubt", step_succeeded: "applied" }[type];
    if (end) Object.assign(attempt, { end, code: data.code ?? data.error_code ?? null });
  }
  return found;
}

const ROLES = { user: "run.user", assistant: "run.assistant", note: "run.note", summary: "run.summary" };

function message(item, open) {
  const { message: said, queued } = item;
  const role = ROLES[said.role] ? t(ROLES[said.role]) : said.role;
  const head = h("header", { class: "said-head" }, h("strong", {}, role), queued ? h("span", { class: "tag" }, t("run.queued")) : null, h("span", { class: "quiet" }, clock(said.created_at)));
  return [head, messageBody(said, open, item.listed)];
}

/** `listed`: the calls of an answer are named here, as no card follows for them. */
function messageBody(said, open, listed) {
  const { body } = said;
  if (said.role === "assistant" || said.role === "summary") {
    const calls = listed ? (body.calls ?? []).map((call) => code(call.name)) : [];
    const text = body.text ? rendered(visible(body.text)) : null;
    return [text, calls.length ? h("p", { class: "calls quiet" }, "→ ", calls.flatMap((each) => [each, " "])) : null];
  }
  if (said.role === "user") return h("div", { class: "plain-text" }, shown(body.text));
  return folding(open, said.id, t("step.told"), valueView(body.content ?? body, t("step.told")), said.role === "note");
}

function modelLine({ step, text, attempts }) {
  const busy = step.status === "running" || step.status === "pending";
  return [
    h("header", { class: "said-head" }, h("strong", {}, t("run.assistant")), chip(step.status, step.display.text), step.error_code ? code(step.error_code) : null),
    text ? h("div", { class: "plain-text writing", "aria-label": t("run.writing") }, shown(text)) : busy ? h("div", { class: "dots", "aria-hidden": "true" }, h("i"), h("i"), h("i")) : null,
    attempts.length > 1 ? attemptList(attempts) : null,
  ];
}

function callCard({ step, result, attempts }, open) {
  const key = (name) => `${step.id} ${name}`;
  const doubtful = step.status === "outcome_unknown";
  return h(
    "section",
    { class: `call is-${step.status}`, data: { step: step.id } },
    h("header", { class: "call-head" }, chip(step.status, step.display.text), nameOf(step), step.error_code ? h("span", { class: "error-code" }, step.error_code) : null),
    step.external_resource_id || step.resource_url ? h("p", { class: "resource" }, resource(step)) : null,
    step.child_run_id ? h("p", {}, h("a", { href: `#/runs/${step.child_run_id}` }, t("run.child"))) : null,
    attempts.length ? h("div", {}, h("p", { class: "small-title" }, t("step.attempts")), attemptList(attempts)) : null,
    step.evidence.length || doubtful ? h("div", {}, h("p", { class: "small-title" }, t("step.evidence")), evidenceList(step.evidence)) : null,
    step.input ? folding(open, key("input"), t("step.arguments"), h("div", {}, argumentsView(step.input))) : null,
    step.output !== null ? folding(open, key("output"), t("step.output"), valueView(step.output, t("step.output"))) : null,
    result ? folding(open, key("told"), t("step.told"), valueView(result.body?.content ?? result.body, t("step.told"))) : null,
    step.operation_key ? facts([[t("step.key"), code(step.operation_key)]], "facts small") : null,
  );
}

/** The tool's name, where the state does not name it already. */
function nameOf(step) {
  return step.tool_name && !step.display.text.includes(step.tool_name) ? code(step.tool_name) : null;
}

/** The id of what a call made, with its link where it has one. */
export function resource(step) {
  const id = step.external_resource_id;
  if (step.resource_url) return outside(step.resource_url, id ? t("step.open_resource", { id }) : step.resource_url);
  return [t("step.resource"), " ", code(id)];
}

function attemptList(attempts) {
  return h(
    "ol",
    { class: "attempts" },
    attempts.map((each) =>
      h(
        "li",
        { class: `end-${each.end ?? "none"}` },
        t("step.attempt", { number: each.number }),
        " · ",
        clock(each.at),
        " · ",
        h("strong", {}, each.end ? word("end", each.end) : t("step.under_way")),
        each.code ? [" ", code(each.code)] : null,
        each.account ? h("span", { class: "quiet" }, " ", shown(each.account)) : null,
      ),
    ),
  );
}
