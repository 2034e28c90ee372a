/** The list of runs, with live states, and what happened lately as small charts. */

import { Problem } from "./client.js";
import { chartsOf } from "./charts.js";
import { fill, fillByKey, h, poll } from "./dom.js";
import { when } from "./format.js";
import { chip, empty, problemBox, showUnreadable } from "./parts.js";
import { openStart } from "./start.js";
import { shown } from "./visible.js";
import { stateText, t } from "./words.js";

const PAGE = 30;
const LIST_MILLISECONDS = 1_500;
const CHARTS_MILLISECONDS = 15_000;
const STATUSES = ["running", "waiting_for_user", "reconciling", "completed", "failed", "cancelled"];

/** Filters outlive a look at one run. */
const chosen = { status: "", agent: "" };

export function runsView(app, root) {
  document.title = `${t("runs.title")} · surefoot`;
  const list = h("ul", { class: "runs", "aria-label": t("runs.list") });
  const nothing = h("div");
  const unreadable = h("div");
  const told = h("div", { role: "status" });
  const older = h("button", { class: "secondary", hidden: true, onclick: () => more() }, t("runs.older"));
  const charts = h("section", { class: "charts", "aria-label": t("chart.title") });
  const pages = new Pages(app.client);

  function show() {
    const runs = pages.runs();
    fillByKey(list, runs.map((run) => [run.id, () => row(run)]));
    runs.forEach((run, index) => refresh(list.children[index], run));
    showUnreadable(unreadable, pages.unreadable());
    older.hidden = pages.next === null;
    const filtered = chosen.status || chosen.agent;
    fill(nothing, runs.length ? null : filtered ? empty(t("runs.none_such"), t("runs.none_such_hint")) : empty(t("runs.none"), t("runs.none_hint")));
  }

  function failed(error) {
    if (error === null) return fill(told);
    if (app.signedOut(error)) return undefined;
    return fill(told, error instanceof Problem ? problemBox(error) : h("p", { class: "notice" }, t("page.unreachable")));
  }

  async function more() {
    older.disabled = true;
    try {
      await pages.more();
      show();
    } catch (error) {
      failed(error);
    }
    older.disabled = false;
  }

  const listPoll = poll(
    async () => {
      await pages.look();
      show();
    },
    LIST_MILLISECONDS,
    failed,
  );
  const chartsPoll = poll(
    async () => fill(charts, chartsOf(await app.client.request("GET", "/v1/statistics", { query: { hours: 24 } }))),
    CHARTS_MILLISECONDS,
    () => undefined,
  );
  const start = app.may("start") ? h("button", { class: "primary", onclick: () => openStart(app) }, t("runs.start")) : null;
  const filters = filterForm(app, () => {
    pages.clear();
    listPoll.now();
  });
  fill(root, h("div", { class: "title-line" }, h("h1", { tabindex: "-1" }, t("runs.title")), start), charts, filters, told, unreadable, list, nothing, older);
  return () => {
    listPoll.stop();
    chartsPoll.stop();
  };
}

/** Pages of runs by cursor. The first is looked at each time, the further ones in turn. */
class Pages {
  #client;
  #seen = new Map();
  #unreadable = new Map();
  #cursors = [];
  #turn = 0;
  #looks = 0;
  next = null;

  constructor(client) {
    this.#client = client;
  }

  runs() {
    return newestFirst(this.#seen);
  }

  unreadable() {
    return newestFirst(this.#unreadable);
  }

  clear() {
    this.#seen.clear();
    this.#unreadable.clear();
    this.#cursors = [];
    this.next = null;
    this.#looks += 1;
  }

  async look() {
    const first = await this.#page(undefined);
    if (this.#cursors.length === 0) this.next = first.next_cursor;
    else await this.#page(this.#cursors[(this.#turn += 1) % this.#cursors.length]);
  }

  async more() {
    const cursor = this.next;
    const page = await this.#page(cursor);
    this.#cursors.push(cursor);
    this.next = page.next_cursor;
  }

  async #page(cursor) {
    const looks = this.#looks;
    const page = await this.#client.runs({ status: chosen.status || undefined, agent: chosen.agent || undefined, limit: PAGE, cursor });
    if (looks !== this.#looks) return this.#page(undefined);
    for (const [seen, rows] of [
      [this.#seen, page.items],
      [this.#unreadable, page.unreadable],
    ]) {
      for (const id of [...seen.keys()]) {
        // What this page should hold and does not any more has another state now. The cursor is its last row.
        const covered = (cursor === undefined || id < cursor) && (page.next_cursor === null || id >= page.next_cursor);
        if (covered) seen.delete(id);
      }
      for (const row of rows) seen.set(row.id, row);
    }
    return page;
  }
}

function newestFirst(rows) {
  return [...rows.values()].sort((a, b) => (a.id < b.id ? 1 : -1));
}

function filterForm(app, changed) {
  const option = (value, text, selected) => h("option", { value, selected: value === selected }, text);
  const status = h(
    "select",
    {},
    option("", t("runs.any"), chosen.status),
    STATUSES.map((each) => option(each, stateText(`run_${each}`), chosen.status)),
  );
  const agent = h("select", {}, option("", t("runs.any"), chosen.agent));
  app.client
    .agents()
    .then(({ items }) => agent.append(...items.map(({ name }) => option(name, name, chosen.agent))))
    .catch((error) => app.signedOut(error));
  const choose = () => {
    chosen.status = status.value;
    chosen.agent = agent.value;
    changed();
  };
  status.addEventListener("change", choose);
  agent.addEventListener("change", choose);
  return h(
    "form",
    { class: "filters", onsubmit: (event) => event.preventDefault() },
    h("label", {}, h("span", {}, t("runs.status")), status),
    h("label", {}, h("span", {}, t("runs.agent")), agent),
  );
}

function row(run) {
  const title = typeof run.metadata?.title === "string" ? run.metadata.title : null;
  const what = h("span", { class: "run-what" }, h("strong", {}, shown(run.agent)), title ? [" ", shown(title)] : null);
  const by = [t("runs.by", { name: run.created_by }), run.kind === "perform" ? t("runs.perform") : null].filter(Boolean).join(" · ");
  return h(
    "li",
    {},
    h(
      "a",
      { class: "run", href: `#/runs/${run.id}` },
      h("span", { class: "run-state" }),
      what,
      h("code", { class: "run-id" }, run.id),
      h("span", { class: "run-by quiet" }, shown(by)),
      h("span", { class: "run-when quiet" }, when(run.created_at)),
    ),
  );
}

function refresh(line, run) {
  const state = line.querySelector(".run-state");
  const key = `${run.status} ${run.error_code ?? ""}`;
  if (state.dataset.state === key) return;
  state.dataset.state = key;
  fill(state, chip(run.status, run.display.text), run.error_code ? h("span", { class: "error-code" }, run.error_code) : null);
}
