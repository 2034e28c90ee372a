/** Times for people. An element that says how long ago something was keeps saying it: `tick` renews all of them. */

import { h } from "./dom.js";
import { language, t } from "./words.js";

const STEPS = [
  ["days", 86_400],
  ["hours", 3_600],
  ["minutes", 60],
  ["seconds", 1],
];

/** A number of seconds in the largest unit that fits: "4 min". */
export function duration(seconds) {
  for (const [unit, size] of STEPS) {
    if (seconds >= size) return t(`time.${unit}`, { count: Math.floor(seconds / size) });
  }
  return t("time.seconds", { count: 0 });
}

/** A date and a time of day, as the language writes them. */
export function full(iso) {
  return new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" }).format(new Date(iso));
}

function relative(iso) {
  const seconds = (Date.parse(iso) - Date.now()) / 1000;
  if (Math.abs(seconds) < 1) return t("time.now");
  return seconds < 0 ? t("time.ago", { time: duration(-seconds) }) : t("time.in", { time: duration(seconds) });
}

/** How long ago, or in how long. */
export function when(iso) {
  if (!iso) return null;
  return h("time", { datetime: iso, title: full(iso), data: { relative: iso } }, relative(iso));
}

/** The time of day. */
export function clock(iso) {
  const time = new Intl.DateTimeFormat(language, { timeStyle: "medium", hourCycle: "h23" }).format(new Date(iso));
  return h("time", { datetime: iso, title: full(iso) }, time);
}

/** Date, time and how long ago. */
export function moment(iso) {
  return iso ? [full(iso), h("span", { class: "quiet" }, " (", when(iso), ")")] : null;
}

function tick() {
  for (const element of document.querySelectorAll("[data-relative]")) {
    const text = relative(element.dataset.relative);
    if (element.textContent !== text) element.textContent = text;
  }
}

setInterval(tick, 1_000);
