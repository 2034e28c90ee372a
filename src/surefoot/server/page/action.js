/** One question to a person: exactly what it is about, and what may be answered. */

import { decide, mayHaveBeenLost } from "./deciding.js";
import { fill, h, nodes } from "./dom.js";
import { schemaForm } from "./form.js";
import { full, moment, when } from "./format.js";
import { argumentsView, block, code, facts, field, outside, problemBox, say, valueView } from "./parts.js";
import { marked, shown } from "./visible.js";
import { stateText, t, word } from "./words.js";

const EVENTS_PAGE = 500;

/** What the caller may do about it, as far as the page can know; the server decides. */
function permitted(app, action) {
  const { permissions } = app.session;
  if (permissions.includes("admin")) return true;
  if (action.kind === "resolve" || action.kind === "duplicate") return permissions.includes("resolve");
  if (action.permission) return permissions.includes(`approve:permission=${action.permission}`);
  return permissions.some((each) => each === "approve" || each.startsWith("approve:"));
}

/**
 * The card of a question. `onDecided(action)` is called with the question as it stands after a decision. `update(action)`
 * shows another state of it, without touching what is being written.
 */
export function actionCard(app, action, { onDecided = () => {}, level = "h2" } = {}) {
  const body = h("div", { class: "card-body" });
  const title = h(level, { class: "card-title", tabindex: "-1" }, questionText(action));
  const head = h("header", { class: "card-head" }, h("span", { class: `kind kind-${action.kind}` }, t(`action.kind_${action.kind}`)), title);
  const element = h("article", { class: "card action", data: { action: action.id } }, head, body);
  const around = h("div", { class: "around" });
  const form = h("div", { class: "deciding" });
  fill(body, question(action), around, exact(action), form);
  let current = action;
  const card = {
    element,
    title,
    update(next) {
      if (next.status === current.status) return;
      current = next;
      // The button that was pressed is gone: whoever goes by keyboard goes on from what it did.
      const held = form.contains(document.activeElement) || document.activeElement === document.body;
      fill(form, outcome(next));
      if (held) form.firstElementChild?.focus();
    },
  };
  const decided = (next) => {
    card.update(next);
    onDecided(next);
  };
  fill(form, action.status === "waiting" ? decisionForm(app, action, decided) : outcome(action));
  context(app, action).then((parts) => fill(around, parts)).catch((error) => fill(around, problemBox(error)));
  return card;
}

function question(action) {
  const preview = action.preview ?? {};
  const asked = action.kind === "ask" && preview.text ? h("p", { class: "asked" }, marked(preview.text)) : null;
  const lead = action.kind === "resolve" || action.kind === "duplicate" ? h("p", { class: "lead" }, t(`action.${action.kind}_lead`)) : null;
  const warnings = preview.warnings ?? [];
  const warned = warnings.length
    ? h("div", { class: "warnings", role: "note" }, h("p", { class: "small-title" }, t("action.warnings")), h("ul", {}, warnings.map((each) => h("li", {}, shown(each)))))
    : null;
  return [asked, lead, warned];
}

function exact(action) {
  const preview = action.preview ?? {};
  const values = action.kind === "ask" ? null : argumentsView(preview.arguments, { escaped: true });
  return [values, preconditions(preview), everything(action)];
}

function preconditions(preview) {
  if (preview.precondition === undefined || preview.precondition === null) return null;
  const now = block(preview.precondition, { label: t("action.now") });
  if (preview.precondition_before === undefined) return [h("p", { class: "small-title" }, t("action.precondition")), now];
  return h(
    "section",
    { class: "beside" },
    h("div", {}, h("p", { class: "small-title" }, t("action.before")), block(preview.precondition_before, { label: t("action.before") })),
    h("div", {}, h("p", { class: "small-title" }, t("action.now")), now),
  );
}

function everything(action) {
  return h("details", { class: "fold" }, h("summary", {}, t("action.exact")), block(action.preview, { escaped: true, label: t("action.exact") }));
}

/** Who asks, for what, until when; and for doubts what is known so far. */
async function context(app, action) {
  const run = await app.client.run(action.run_id);
  const step = run.steps.find((each) => each.id === action.step_id);
  const who = t("action.agent_for", { agent: run.agent, name: run.created_by });
  const list = facts([
    [t("action.tool"), step?.tool_name ? code(step.tool_name) : t("action.model")],
    [t("action.target"), action.preview?.target ? code(action.preview.target) : null],
    [t("action.asked_by"), shown(who)],
    [t("action.run"), h("a", { href: `#/runs/${run.id}` }, code(run.id))],
    [t("action.asked"), moment(action.created_at)],
    [t("action.expires"), action.expires_at ? moment(action.expires_at) : action.kind === "approve" ? t("action.never") : null],
    [t("action.permission"), action.permission ? code(action.permission) : null],
    [t("action.hash"), code(action.input_hash)],
  ]);
  if (action.kind === "approve" || action.kind === "ask") return [list];
  const effects = action.kind === "duplicate" ? await duplicates(app, action) : null;
  const key = step?.operation_key ? facts([[t("step.key"), code(step.operation_key)]]) : null;
  return [list, key, effects, h("p", { class: "small-title" }, t("step.evidence")), evidenceList(step?.evidence ?? [])];
}

async function duplicates(app, action) {
  const found = new Map();
  for (let after = 0; ; ) {
    const page = await app.client.events(action.run_id, { after, limit: EVENTS_PAGE });
    for (const event of page.items) collectEffects(event, action.step_id, found);
    if (page.items.length < EVENTS_PAGE) break;
    after = page.next_after;
  }
  if (!found.size) return null;
  const lines = [...found].map(([id, url]) => h("li", {}, code(id), " ", outside(url, url)));
  return [h("p", { class: "small-title" }, t("action.effects")), h("ul", { class: "effects" }, lines)];
}

function collectEffects(event, stepId, found) {
  if (event.step_id !== stepId) return;
  const { data } = event;
  if (event.type === "duplicate_detected") data.resource_ids.forEach((id, index) => found.set(id, data.resource_urls?.[index] ?? found.get(id)));
  else if (event.type === "receipt_recorded" && data.resource_id) found.set(data.resource_id, data.resource_url);
}

/** Evidence of a step, oldest first. */
export function evidenceList(evidence) {
  if (!evidence.length) return h("p", { class: "quiet" }, t("evidence.none"));
  return h("ol", { class: "evidence" }, evidence.map(evidenceLine));
}

function evidenceLine(each) {
  const said = [
    each.attempt ? t("evidence.attempt", { number: each.attempt }) : null,
    each.reason,
    each.coverage ? t("evidence.coverage", { coverage: typeof each.coverage === "string" ? each.coverage : JSON.stringify(each.coverage) }) : null,
  ].filter(Boolean);
  return h(
    "li",
    { class: `verdict-${each.verdict}` },
    h("span", { class: "verdict" }, stateText(`verdict_${each.verdict}`)),
    h("span", { class: "quiet" }, ` ${word("source", each.source)} · `, when(each.at)),
    each.resource_id ? [" ", code(each.resource_id)] : null,
    each.url ? [" ", outside(each.url)] : null,
    said.length ? h("div", { class: "quiet" }, shown(said.join(" · "))) : null,
  );
}

/** What is asked, in the server's words; a question that was decided on is headed by what it had asked. */
function questionText(action) {
  if (action.status === "waiting") return action.display.text;
  return stateText(`question_${action.kind}`).replace("{tool}", action.tool_name ?? t("action.model"));
}

/** What became of a question. */
function outcome(action) {
  if (action.status === "waiting") return null;
  if (action.status === "expired") return h("p", { class: "outcome", tabindex: "-1" }, action.display.text);
  const said = t("action.decided", { decision: action.display.text, name: action.decided_by });
  return h(
    "div",
    { class: `outcome is-${action.status}`, role: "status", tabindex: "-1" },
    h("p", {}, h("strong", {}, shown(said)), action.decided_at ? [" · ", h("span", { class: "quiet" }, full(action.decided_at))] : null),
    action.decided_from ? h("p", { class: "quiet" }, shown(t("action.decided_from", { source: action.decided_from }))) : null,
    action.reason ? h("blockquote", {}, shown(action.reason)) : null,
    action.answer !== null && action.answer !== undefined ? valueView(action.answer, t("form.answer")) : null,
  );
}

function decisionForm(app, action, onDecided) {
  const signal = action.preview?.signal;
  if (signal) return h("p", { class: "quiet" }, shown(t("action.signal", { name: signal })));
  if (!permitted(app, action)) {
    const takes = action.permission ? t("action.takes", { permission: action.permission }) : null;
    return h("p", { class: "quiet" }, t("action.not_permitted"), " ", takes);
  }
  const make = { approve: approvalForm, duplicate: () => duplicateForm(app, sender(app, action, onDecided), action), resolve: resolveForm, ask: answerForm }[action.kind];
  return make(sender(app, action, onDecided), action);
}

/** Sends decisions of one form: its buttons rest meanwhile, and what went wrong is said below them. */
function sender(app, action, onDecided) {
  const told = h("div", { class: "told", "aria-live": "assertive" });
  async function send(element, decision) {
    const place = element.closest(".deciding");
    const buttons = [...element.querySelectorAll("button")];
    buttons.forEach((button) => (button.disabled = true));
    fill(told, h("p", { class: "quiet" }, t("action.sending")));
    try {
      const next = await decide(app.client, action, decision, () => fill(told, h("p", { class: "quiet" }, t("action.lost"))));
      say(t("action.decided", { decision: next.display.text, name: next.decided_by }));
      onDecided(next);
    } catch (error) {
      if (app.signedOut(error)) return;
      buttons.forEach((button) => (button.disabled = false));
      fill(told, refused(error));
      if (error.code === "already_decided" || error.code === "action_expired") {
        const next = await app.client.action(action.id).catch(() => null);
        if (next && next.status !== "waiting") onDecided(next);
        place?.prepend(told);
      }
    }
  }
  return { told, send };
}

function refused(error) {
  if (error.code === "already_decided") {
    const { decision, decided_by: name } = error.details;
    return h("p", { class: "problem", role: "alert" }, shown(t("action.conflict", { decision: stateText(`decided_${decision}`), name })));
  }
  if (error.code === "action_expired") return h("p", { class: "problem", role: "alert" }, t("action.expired", { why: stateText(`expired_${error.details.why}`) }));
  if (mayHaveBeenLost(error)) return h("p", { class: "problem", role: "alert" }, t("action.lost_for_now"));
  return problemBox(error);
}

function twoWays({ told, send }, yes, no) {
  const reason = h("textarea", { rows: 2, maxlength: 2_000 });
  const form = h("form", { class: "decision" });
  const chosen = (decision) => send(form, { decision, ...(reason.value.trim() ? { reason: reason.value.trim() } : {}) });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    chosen(event.submitter?.value ?? "");
  });
  form.append(
    field(t("action.reason"), reason, { optional: true }),
    h(
      "div",
      { class: "buttons" },
      h("button", { class: "primary", value: "approve" }, yes),
      h("button", { class: "danger", value: "reject" }, no),
    ),
    told,
  );
  return form;
}

function approvalForm(sending) {
  return twoWays(sending, t("action.do_approve"), t("action.do_reject"));
}

function duplicateForm(app, sending, action) {
  const form = twoWays(sending, t("action.seen_to"), t("action.leave_both"));
  // Only a tool that says how it is undone can undo anything.
  app.client
    .agents()
    .then(({ items }) => {
      const tool = items.flatMap((agent) => agent.tools).find((each) => each.name === action.tool_name);
      if (tool?.compensates) form.querySelector("[value=approve]").textContent = t("action.undo");
    })
    .catch((error) => app.signedOut(error));
  return form;
}

function resolveForm({ told, send }) {
  const form = h("form", { class: "decision" });
  const id = h("input", { type: "text", maxlength: 500, autocomplete: "off" });
  const url = h("input", { type: "url", maxlength: 2_000, autocomplete: "off", placeholder: "https://" });
  const more = h("div", { class: "more", hidden: true }, field(t("action.resource_id"), id, { optional: true }), field(t("action.resource_url"), url, { optional: true }));
  const radios = ["happened", "did_not_happen", "give_up"].map((value) =>
    h("input", { type: "radio", name: "outcome", value, required: true, onchange: () => (more.hidden = value !== "happened") }),
  );
  const lines = radios.flatMap((radio) => {
    const texts = h("span", {}, h("strong", {}, t(`action.${radio.value}`)), h("span", { class: "hint" }, t(`action.${radio.value}_hint`)));
    return [h("label", { class: "choice big" }, radio, texts), radio.value === "happened" ? more : null];
  });
  const reason = h("textarea", { rows: 2, maxlength: 2_000 });
  form.append(
    ...nodes([h("fieldset", { class: "choices" }, h("legend", {}, t("action.choose")), lines)]),
    field(t("action.reason"), reason, { optional: true }),
    h("div", { class: "buttons" }, h("button", { class: "primary" }, t("action.do_record"))),
    told,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const decision = radios.find((radio) => radio.checked).value;
    const told = decision === "happened" ? { external_resource_id: id.value.trim(), url: url.value.trim() } : {};
    const given = Object.entries({ ...told, reason: reason.value.trim() }).filter(([, value]) => value);
    send(form, { decision, ...Object.fromEntries(given) });
  });
  return form;
}

function answerForm({ told, send }, action) {
  const asked = schemaForm(action.preview?.schema ?? { type: "string" });
  const form = h("form", { class: "decision" });
  const decline = h("button", { type: "button", class: "danger", onclick: () => send(form, { decision: "reject" }) }, t("action.do_decline"));
  form.append(asked.element, h("div", { class: "buttons" }, h("button", { class: "primary" }, t("action.do_answer")), decline), told);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    try {
      send(form, { decision: "answer", value: asked.value() ?? null });
    } catch (error) {
      fill(told, problemBox(error));
    }
  });
  return form;
}
