/** What waits for a person: a list, and one question beside it. */

import { actionCard } from "./action.js";
import { fill, fillByKey, h } from "./dom.js";
import { when } from "./format.js";
import { empty, problemBox, showUnreadable } from "./parts.js";
import { shown } from "./visible.js";
import { t } from "./words.js";

const KINDS = ["approve", "resolve", "ask", "duplicate"];

/** The chosen kind outlives a look at a question. */
const chosen = { kind: "" };

export function inboxView(app, root, id) {
  document.title = `${t("inbox.title")} · surefoot`;
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": t("inbox.kinds") });
  const list = h("ul", { class: "waiting", "aria-label": t("inbox.list") });
  const nothing = h("div");
  const unreadable = h("div");
  const place = h("div", { class: "inbox-one" });
  const view = h("div", { class: id ? "inbox has-one" : "inbox" }, h("div", { class: "inbox-list" }, tabs, unreadable, list, nothing), place);
  let gone = false;
  let known = null;
  let card = null;

  function show(items) {
    known = items;
    showUnreadable(unreadable, app.unreadable);
    if (card !== null && !items.some((each) => each.id === id)) settle();
    const wanted = items.filter((each) => !chosen.kind || each.kind === chosen.kind);
    fillByKey(list, wanted.map((each) => [each.id, () => line(each, each.id === id)]));
    fill(nothing, wanted.length ? null : empty(t("inbox.none"), t("inbox.none_hint")));
    fillByKey(
      tabs,
      ["", ...KINDS].map((kind) => [kind || "all", () => tab(kind)]),
    );
    for (const button of tabs.children) {
      const { kind } = button.dataset;
      const count = items.filter((each) => !kind || each.kind === kind).length;
      button.querySelector(".count").textContent = String(count);
      button.setAttribute("aria-pressed", String(kind === chosen.kind));
    }
  }

  function tab(kind) {
    const choose = () => {
      chosen.kind = kind;
      show(known);
    };
    return h("button", { class: "tab", data: { kind }, onclick: choose }, t(`inbox.${kind || "all"}`), " ", h("span", { class: "count" }));
  }

  function decided() {
    app.lookAtWaiting();
    const next = (known ?? []).find((each) => each.id !== id && (!chosen.kind || each.kind === chosen.kind));
    if (next) place.append(h("p", { class: "next" }, h("a", { class: "button", href: `#/inbox/${next.id}` }, t("inbox.next"))));
  }

  /** Somebody else has decided, or the question is gone: the card says so. */
  async function settle() {
    const settled = card;
    card = null;
    try {
      settled.update(await app.client.action(id));
    } catch (error) {
      card = settled;
      app.signedOut(error);
    }
  }

  async function showOne() {
    const back = h("p", { class: "back" }, h("a", { href: "#/inbox" }, t("inbox.back")));
    try {
      const action = await app.client.action(id);
      if (gone) return;
      const made = actionCard(app, action, { onDecided: decided });
      if (action.status === "waiting") card = made;
      fill(place, back, made.element);
      made.title.focus();
    } catch (error) {
      if (!app.signedOut(error)) fill(place, back, problemBox(error));
    }
  }

  fill(root, h("h1", { tabindex: "-1" }, t("inbox.title")), view);
  app.onWaiting = show;
  show(app.waiting);
  app.lookAtWaiting();
  if (id) showOne();
  else fill(place, h("p", { class: "choose quiet" }, t("inbox.choose")));
  return () => {
    gone = true;
  };
}

function line(action, current) {
  const what = action.kind === "ask" ? (action.preview?.text ?? "") : (action.tool_name ?? t("action.model"));
  return h(
    "li",
    {},
    h(
      "a",
      { href: `#/inbox/${action.id}`, class: "waiting-one", "aria-current": current ? "true" : null },
      h("span", { class: `kind kind-${action.kind}` }, t(`action.kind_${action.kind}`)),
      h("strong", {}, shown(what)),
      action.preview?.target ? h("span", { class: "quiet" }, shown(action.preview.target)) : null,
      h("span", { class: "quiet" }, when(action.created_at)),
    ),
  );
}
