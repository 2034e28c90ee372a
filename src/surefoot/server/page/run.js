/** One run, live: its state, what it waits for, its timeline, its open questions, its events. */

import { actionCard } from "./action.js";
import { mayHaveBeenLost, untilReplied } from "./deciding.js";
import { fill, fillByKey, h } from "./dom.js";
import { clock, moment, when } from "./format.js";
import { chip, code, facts, openDialog, problemBox, say, showUnreadable, valueView } from "./parts.js";
import { openStart } from "./start.js";
import { resource, Timeline } from "./timeline.js";
import { shown } from "./visible.js";
import { eventText, t, vocabulary } from "./words.js";

const PAGE = 500;
const LATER_MILLISECONDS = 4_000;
const AGAIN_MILLISECONDS = 1_000;
const REST_MILLISECONDS = 60;
const UNTAKEN_MILLISECONDS = 16_000;

export function runView(app, root, id) {
  const live = new LiveRun(app, root, id);
  live.begin();
  return () => live.leave();
}

class LiveRun {
  #app;
  #root;
  #id;
  #gone = false;
  #watch = null;
  #timer;
  #late;
  #busy = false;
  #again = false;
  #drawing = false;
  #known = { run: null, messages: [], queued: [], events: [], texts: new Map() };
  #timeline = new Timeline();
  #cards = new Map();
  #places = {};
  #eventCount = 0;

  constructor(app, root, id) {
    this.#app = app;
    this.#root = root;
    this.#id = id;
  }

  begin() {
    document.title = `${t("action.run")} · surefoot`;
    this.#lay();
    this.#watch = this.#app.client.watch(this.#id, {
      after: 0,
      onSnapshot: (run) => this.#begun(run),
      onEvent: (event) => this.#event(event),
      onText: (frame) => this.#text(frame),
      onConnection: (state) => this.#connection(state),
    });
    this.#watch.done.then((run) => run && this.#over(run)).catch((error) => this.#failed(error));
  }

  leave() {
    this.#gone = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#late);
    this.#watch?.close();
  }

  #lay() {
    const places = {
      head: h("div", { class: "run-head" }),
      line: h("p", { class: "connection", role: "status" }, t("run.connecting")),
      told: h("div", { "aria-live": "polite" }),
      receipt: h("div"),
      unreadable: h("div"),
      open: h("section", { class: "open", "aria-labelledby": "open-title", hidden: true }, h("h2", { id: "open-title" }, t("run.open"))),
      cards: h("div", { class: "cards" }),
      result: h("div"),
      say: h("div"),
      count: h("strong", { class: "events-count" }),
      events: h("ol", { class: "events" }),
    };
    this.#places = places;
    places.open.append(places.cards);
    const all = h("input", { type: "checkbox", onchange: () => places.events.classList.toggle("all", all.checked) });
    const events = h(
      "section",
      { class: "events-part", "aria-labelledby": "events-title" },
      h("h2", { id: "events-title" }, t("run.events")),
      h("p", { class: "quiet events-line" }, places.count, h("label", {}, all, " ", t("run.events_all"))),
      h("div", { class: "events-scroll", tabindex: "0", role: "group", "aria-label": t("run.events") }, places.events),
    );
    const story = h("section", { class: "story", "aria-labelledby": "story-title" }, h("h2", { id: "story-title" }, t("run.timeline")), this.#timeline.element, places.result, places.say);
    fill(this.#root, places.head, places.line, places.told, places.receipt, places.unreadable, places.open, h("div", { class: "two" }, story, events));
  }

  #begun(run) {
    // A second snapshot means that the server's store is another one: what was seen does not count any more.
    Object.assign(this.#known, { run, messages: [], queued: [], events: [], texts: new Map() });
    this.#eventCount = 0;
    fill(this.#places.events);
    this.#draw();
    this.#refresh();
  }

  #event(event) {
    this.#known.events.push(event);
    this.#places.line.dataset.sequence = event.sequence;
    if (event.type === "message_appended" && event.data.role === "assistant") this.#known.texts.delete(event.step_id);
    this.#draw();
    this.#refresh();
  }

  #text({ step_id: id, attempt, text, missed, over }) {
    const { texts } = this.#known;
    const before = texts.get(id);
    // The next attempt replaces what the one before wrote; where pieces are missing the message is waited for.
    if (missed) texts.set(id, { attempt, text: "", broken: true });
    else if (before === undefined || before.attempt !== attempt) texts.set(id, { attempt, text });
    else if (!before.broken) before.text += text;
    if (over) this.#refresh();
    this.#draw();
  }

  #connection(state) {
    const { line } = this.#places;
    line.className = `connection is-${state}`;
    line.textContent = { connecting: t("run.connecting"), open: t("run.live"), waiting: t("run.lost") }[state];
    if (state === "open") this.#refresh();
  }

  async #over(run) {
    if (this.#gone) return;
    const { line } = this.#places;
    line.className = "connection is-over";
    line.textContent = t("run.over");
    this.#known.run = run;
    this.#draw();
    await this.#refresh();
    this.#later();
  }

  /** A run that has ended may still learn what became of a call. */
  #later() {
    clearTimeout(this.#timer);
    if (this.#gone) return;
    this.#timer = setTimeout(async () => {
      if (!document.hidden) await this.#catchUp().catch((error) => this.#app.signedOut(error));
      this.#later();
    }, LATER_MILLISECONDS);
  }

  async #catchUp() {
    const run = await this.#app.client.run(this.#id);
    const { events } = this.#known;
    while (!this.#gone && (events.at(-1)?.sequence ?? 0) < run.last_event_sequence) {
      const page = await this.#app.client.events(this.#id, { after: events.at(-1)?.sequence ?? 0, limit: PAGE });
      if (!page.items.length) break;
      page.items.forEach((event) => this.#event(event));
    }
  }

  #failed(error) {
    if (this.#gone || this.#app.signedOut(error)) return;
    fill(this.#root, problemBox(error), h("p", {}, h("a", { href: "#/runs" }, t("page.to_runs"))));
  }

  /** Read the snapshot and the new messages; asked again meanwhile, once more behind it. */
  async #refresh() {
    this.#again = true;
    if (this.#busy) return;
    this.#busy = true;
    while (this.#again && !this.#gone) {
      this.#again = false;
      const begun = performance.now();
      try {
        this.#known.run = await this.#app.client.run(this.#id);
        await this.#readMessages();
        this.#draw();
        // A long run's snapshot is large: the page spends at most a part of its time on reading it.
        await pause(Math.max(REST_MILLISECONDS, performance.now() - begun));
      } catch (error) {
        if (this.#gone || this.#app.signedOut(error)) break;
        if (!mayHaveBeenLost(error)) throw error;
        await pause(AGAIN_MILLISECONDS);
        this.#again = true;
      }
    }
    this.#busy = false;
  }

  async #readMessages() {
    const { messages } = this.#known;
    for (let more = true; more; ) {
      const last = messages.at(-1)?.position;
      const page = await this.#app.client.messages(this.#id, { cursor: last, limit: PAGE });
      messages.push(...page.items.filter((each) => last === undefined || each.position > last));
      this.#known.queued = page.queued;
      more = page.next_cursor !== null;
    }
    for (const each of messages) if (each.role === "assistant") this.#known.texts.delete(each.step_id);
  }

  /** Draw in the next frame; many events at once are one drawing. */
  #draw() {
    if (this.#drawing) return;
    this.#drawing = true;
    const draw = () => {
      this.#drawing = false;
      if (!this.#gone && this.#known.run) this.#drawNow();
    };
    // Frames stand still in a page that nobody looks at.
    if (document.hidden) setTimeout(draw, 50);
    else requestAnimationFrame(draw);
  }

  #drawNow() {
    const { run } = this.#known;
    document.title = `${run.agent} · ${run.display.text} · surefoot`;
    this.#drawHead(run);
    this.#drawOpen(run);
    this.#timeline.show(this.#known);
    this.#drawEvents(run);
    this.#drawEnd(run);
    this.#drawReceipt(run);
    showUnreadable(this.#places.unreadable, run.unreadable);
  }

  #drawHead(run) {
    const state = [run.status, run.error_code, run.can_cancel, run.next?.what, run.next?.at, run.next?.since].join(" ");
    const { head } = this.#places;
    if (head.dataset.state === state) return;
    head.dataset.state = state;
    // That no worker takes a run is no event: it shows in a later snapshot.
    clearTimeout(this.#late);
    if (run.next?.what === "start" && !run.error_code) this.#late = setTimeout(() => this.#refresh(), UNTAKEN_MILLISECONDS);
    const next = run.next === null ? null : h("p", { class: "next-line" }, nextLine(run.next));
    const parent = run.parent_step_id ? `run_${run.parent_step_id.replace(/^step_/, "").replace(/_\d+$/, "")}` : null;
    const cancel = run.can_cancel && this.#app.may("start") ? h("button", { class: "danger", onclick: () => this.#cancel() }, t("run.cancel")) : null;
    const blocked = run.error_code && run.can_cancel ? h("p", { class: "notice" }, t("run.blocked", { code: run.error_code })) : null;
    const failed = run.error_code && !run.can_cancel ? h("p", { class: "error-line" }, t("run.error", { code: run.error_code })) : null;
    fill(
      head,
      h("div", { class: "title-line" }, h("h1", { tabindex: "-1" }, shown(run.agent), " ", chip(run.status, run.display.text)), cancel),
      next,
      blocked,
      failed,
      facts([
        [t("run.id"), code(run.id)],
        [t("run.by"), shown(run.created_by)],
        [t("run.started"), moment(run.created_at)],
        [t("run.parent"), parent ? h("a", { href: `#/runs/${parent}` }, code(parent)) : null],
      ]),
    );
  }

  #drawOpen(run) {
    const { open, cards } = this.#places;
    const waiting = new Map(run.pending_actions.map((each) => [each.id, each]));
    for (const [id, each] of waiting) {
      if (!this.#cards.has(id)) this.#cards.set(id, actionCard(this.#app, each, { level: "h3", onDecided: () => this.#decided() }));
    }
    for (const [id, card] of this.#cards) {
      if (!waiting.has(id)) this.#settle(id, card);
    }
    open.hidden = this.#cards.size === 0;
    const title = t(waiting.size ? "run.open" : "run.asked");
    if (open.firstElementChild.textContent !== title) open.firstElementChild.textContent = title;
    fillByKey(cards, [...this.#cards].map(([id, card]) => [id, () => card.element]));
  }

  /** A question that is not open any more shows what became of it. */
  async #settle(id, card) {
    if (card.settled) return;
    card.settled = true;
    try {
      card.update(await this.#app.client.action(id));
    } catch (error) {
      card.settled = false;
      this.#app.signedOut(error);
    }
  }

  #decided() {
    this.#app.lookAtWaiting();
    this.#refresh();
  }

  #drawEvents(run) {
    const { events, count } = this.#places;
    const steps = new Map(run.steps.map((step) => [step.id, step]));
    const fresh = this.#known.events.slice(this.#eventCount);
    // A step that an event speaks of is in the next snapshot: its line is written then.
    const unknown = fresh.findIndex((event) => event.step_id && !steps.has(event.step_id));
    const ready = unknown < 0 ? fresh : fresh.slice(0, unknown);
    this.#eventCount += ready.length;
    const scroll = events.parentElement;
    const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 40;
    events.append(...ready.map((event) => eventLine(event, steps.get(event.step_id ?? event.data.step_id))));
    // Whoever reads further up is left there.
    if (ready.length && atEnd) scroll.scrollTop = scroll.scrollHeight;
    count.textContent = t("run.events_count", { count: this.#eventCount });
  }

  #drawEnd(run) {
    const { result, say: saying } = this.#places;
    // What the last answer says already is not said again.
    const said = this.#known.messages.findLast((each) => each.role === "assistant")?.body.text;
    const plain = run.result !== null && Object.keys(run.result).join() === "text" && run.result.text === said;
    const state = `${run.status} ${run.result !== null} ${plain}`;
    if (result.dataset.state === state) return;
    result.dataset.state = state;
    fill(result, run.result === null || plain ? null : h("section", { class: "result" }, h("h3", {}, t("run.result")), valueView(run.result, t("run.result"))));
    if (run.kind !== "agent" || !this.#app.may("start")) return;
    if (run.can_cancel) {
      if (!saying.firstChild) fill(saying, this.#messageForm());
      return;
    }
    const again = { agent: run.agent, conversation_id: run.conversation_id };
    fill(saying, h("button", { class: "secondary", onclick: () => openStart(this.#app, again) }, t("start.again")));
  }

  #messageForm() {
    const text = h("textarea", { rows: 2, required: true, "aria-label": t("run.message"), placeholder: t("run.message") });
    const told = h("div", { "aria-live": "assertive" });
    const button = h("button", { class: "secondary" }, t("run.send"));
    const send = async (event) => {
      event.preventDefault();
      button.disabled = true;
      try {
        await this.#app.client.say(this.#id, text.value);
        text.value = "";
        fill(told);
        this.#refresh();
      } catch (error) {
        if (!this.#app.signedOut(error)) fill(told, mayHaveBeenLost(error) ? h("p", { class: "problem", role: "alert" }, t("page.unreachable")) : problemBox(error));
      }
      button.disabled = false;
    };
    return h("form", { class: "say", onsubmit: send }, text, button, told);
  }

  #cancel() {
    const told = h("div", { "aria-live": "assertive" });
    const go = h("button", { class: "danger" }, t("cancel.submit"));
    const keep = h("button", { type: "button", class: "secondary", onclick: () => dialog.close() }, t("cancel.keep"));
    const cancel = async (event) => {
      event.preventDefault();
      go.disabled = true;
      try {
        const receipt = await untilReplied(() => this.#app.client.cancel(this.#id), () => fill(told, h("p", { class: "quiet" }, t("page.unreachable"))));
        fill(form, receiptOf(receipt.may_have_been_sent), h("div", { class: "buttons" }, h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, t("start.close"))));
        say(t("cancel.done"));
        this.#refresh();
      } catch (error) {
        go.disabled = false;
        // The reply to the first cancel was lost: the receipt stands on the page.
        if (this.#app.signedOut(error) || error.code === "run_ended") dialog.close();
        else fill(told, problemBox(error));
      }
    };
    const form = h("form", { onsubmit: cancel }, h("p", { class: "lead" }, t("cancel.lead")), told, h("div", { class: "buttons" }, go, keep));
    const dialog = openDialog(t("cancel.title"), form);
  }

  /** The receipt of a cancel stays on the page, with what became of each call since. */
  #drawReceipt(run) {
    const { receipt } = this.#places;
    const cancelled = this.#known.events.find((event) => event.type === "run_cancelled");
    if (!cancelled) return;
    const sent = new Set(cancelled.data.may_have_been_sent ?? []);
    const steps = run.steps.filter((step) => sent.has(step.id));
    const state = JSON.stringify(steps.map((step) => [step.id, step.status, step.display.text]));
    if (receipt.dataset.state === state) return;
    receipt.dataset.state = state;
    fill(receipt, h("section", { class: "card receipt" }, receiptOf(steps)));
  }
}

function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

function nextLine({ what, since, at }) {
  return [
    h("strong", {}, vocabulary.next[what] ?? what),
    since ? [" · ", t("run.since"), " ", clock(since)] : null,
    at ? [" · ", t("run.at"), " ", clock(at), " (", when(at), ")"] : null,
  ];
}

function receiptOf(steps) {
  const lines = steps.map((step) => h("li", {}, chip(step.status, step.display.text), " ", code(step.tool_name ?? ""), " ", step.external_resource_id || step.resource_url ? resource(step) : null, step.operation_key ? h("div", { class: "quiet" }, code(step.operation_key)) : null));
  return [h("p", {}, h("strong", {}, t("cancel.done"))), h("p", {}, t(steps.length ? "cancel.some" : "cancel.none")), steps.length ? h("ul", { class: "sent" }, lines) : null];
}

function eventLine(event, step) {
  const text = eventText(event, step);
  return h(
    "li",
    { class: text === null ? "minor" : null, data: { sequence: event.sequence, type: event.type } },
    h("span", { class: "number" }, String(event.sequence)),
    clock(event.at),
    h("span", { class: "event-text" }, text === null ? code(event.type) : shown(text)),
  );
}
