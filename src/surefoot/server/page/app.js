/** The page: who is here, where they are, and the frame around each view. */

import { Client, Problem } from "./client.js";
import { fill, h, poll, s } from "./dom.js";
import { inboxView } from "./inbox.js";
import { loginView } from "./login.js";
import { problemBox } from "./parts.js";
import { runView } from "./run.js";
import { runsView } from "./runs.js";
import { language, switchLanguage, t, vocabulary } from "./words.js";

const WAITING_MILLISECONDS = 3_000;
const WAITING_MAX = 200;
const WAITING_PAGES = 5;

const main = document.getElementById("main");
const top_ = document.getElementById("top");

const app = {
  session: null,
  client: new Client({ language, headers: () => (app.session?.csrf ? { "X-CSRF-Token": app.session.csrf } : {}) }),
  /** The questions that wait, as they were last seen. */
  waiting: [],
  unreadable: [],
  /** Called with them each time. */
  onWaiting: null,
  lookAtWaiting: () => undefined,
  may(act) {
    return app.session.permissions.includes(act) || app.session.permissions.includes("admin");
  },
  /** True where an error says that nobody is logged in any more: then the log-in page is shown. */
  signedOut(error) {
    if (!(error instanceof Problem) || error.status !== 401) return false;
    leave();
    showLogin(app.session === null ? null : t("login.over"));
    app.session = null;
    return true;
  },
};

let leaveView = null;
let waitingPoll = null;

function leave() {
  leaveView?.();
  leaveView = null;
  waitingPoll?.stop();
  waitingPoll = null;
}

function mark() {
  return s(
    "svg",
    { viewBox: "0 0 32 32", width: 28, height: 28, "aria-hidden": "true", class: "mark" },
    s("rect", { width: 32, height: 32, rx: 8, class: "mark-ground" }),
    s("path", { d: "M8 23.5h6.5v-5H21v-5h5", class: "mark-step" }),
    s("circle", { cx: 10, cy: 10, r: 3, class: "mark-dot" }),
  );
}

function showTop() {
  const badge = h("span", { class: "badge", hidden: true });
  const link = (href, text, more) => h("a", { href, data: { nav: href } }, text, more);
  const known = app.session !== null;
  const nav = h("nav", { "aria-label": t("page.nav") }, link("#/runs", t("page.runs")), link("#/inbox", t("page.inbox"), badge));
  const switcher = h("button", { class: "plain", onclick: switchLanguage, lang: language === "en" ? "zh-CN" : "en", "aria-label": t("page.language_label") }, t("page.language"));
  const leaving = app.session?.can_log_out ? h("button", { class: "plain", onclick: logOut }, t("page.log_out")) : null;
  const who = known ? h("span", { class: "who" }, app.session.name) : null;
  fill(top_, h("a", { href: "#/runs", class: "brand" }, mark(), h("span", {}, "surefoot")), known ? nav : null, h("div", { class: "me" }, who, leaving, switcher));
  return badge;
}

/** The inbox, page by page while there is room for more: a page may hold hardly anything that can be read. */
async function readWaiting() {
  const found = { items: [], unreadable: [] };
  let cursor;
  for (let pages = 0; pages < WAITING_PAGES && cursor !== null && found.items.length < WAITING_MAX; pages += 1) {
    const page = await app.client.actions({ status: "waiting", limit: WAITING_MAX - found.items.length, cursor });
    found.items.push(...page.items);
    found.unreadable.push(...page.unreadable);
    cursor = page.next_cursor;
  }
  return found;
}

function showWaiting(badge, { items, unreadable }) {
  app.waiting = items;
  app.unreadable = unreadable;
  badge.hidden = items.length === 0;
  badge.textContent = items.length === WAITING_MAX ? `${WAITING_MAX}+` : String(items.length);
  badge.setAttribute("aria-label", t("page.waiting", { count: items.length }));
  app.onWaiting?.(items);
}

const VIEWS = [
  [/^#\/runs$/, runsView],
  [/^#\/runs\/([^/]+)$/, runView],
  [/^#\/inbox(?:\/([^/]+))?$/, inboxView],
];

/** Show the view of the address. `moved`: somebody followed a link, so the focus goes along. */
function route(moved = false) {
  if (app.session === null) return;
  leaveView?.();
  leaveView = null;
  app.onWaiting = null;
  const hash = location.hash || "#/runs";
  for (const link of top_.querySelectorAll("[data-nav]")) {
    if (hash.startsWith(link.dataset.nav)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const [pattern, view] of VIEWS) {
    const match = pattern.exec(hash);
    if (match === null) continue;
    fill(main);
    scrollTo(0, 0);
    if (moved) main.focus({ preventScroll: true });
    leaveView = view(app, main, ...match.slice(1).map((part) => part && decodeURIComponent(part)));
    return;
  }
  document.title = "surefoot";
  fill(main, h("h1", {}, t("page.no_place")), h("p", {}, h("a", { href: "#/runs" }, t("page.to_runs"))));
}

function showLogin(message) {
  showTop();
  leaveView = loginView(app, main, message, enter);
}

async function logOut() {
  try {
    await app.client.request("DELETE", "/v1/session");
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
  }
  leave();
  app.session = null;
  showLogin(null);
}

async function enter(session) {
  app.session = session;
  Object.assign(vocabulary, await app.client.request("GET", "/v1/vocabulary"));
  const badge = showTop();
  const failed = (error) => {
    if (error !== null) app.signedOut(error);
  };
  route();
  waitingPoll = poll(
    async () => showWaiting(badge, await readWaiting()),
    WAITING_MILLISECONDS,
    failed,
  );
  app.lookAtWaiting = waitingPoll.now;
}

async function begin() {
  document.documentElement.lang = language;
  document.getElementById("skip").textContent = t("page.skip");
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  addEventListener("hashchange", () => route(true));
  for (;;) {
    try {
      await enter(await app.client.request("GET", "/v1/session"));
      return;
    } catch (error) {
      if (app.signedOut(error)) return;
      fill(main, error instanceof Problem ? problemBox(error) : h("p", { role: "status" }, t("page.unreachable")));
      await new Promise((resolve) => setTimeout(resolve, WAITING_MILLISECONDS));
    }
  }
}

begin();
