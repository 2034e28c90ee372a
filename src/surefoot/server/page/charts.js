/** Small charts as SVG. Each says in words what it shows, and its numbers stand in it. Counts, never shares. */

import { h, s } from "./dom.js";
import { duration, when } from "./format.js";
import { stateText, t } from "./words.js";

const STATUSES = ["completed", "running", "waiting_for_user", "reconciling", "failed", "cancelled"];
const VERDICTS = ["found", "absent", "undetermined"];
const WIDTH = 280;
const HEIGHT = 72;
const LINE = 18;

/** The three charts of GET /v1/statistics. */
export function chartsOf(statistics) {
  return [runsChart(statistics), approvalsChart(statistics), lookupsChart(statistics)];
}

function figure(title, total, picture, legend) {
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, h("span", {}, title), h("strong", {}, String(total))),
    total ? picture : h("p", { class: "quiet" }, t("chart.none")),
    total ? legend : null,
  );
}

function legendOf(parts) {
  return h("ul", { class: "legend" }, parts.map(([kind, text, count]) => h("li", {}, h("span", { class: `dot is-${kind}` }), ` ${text} `, h("strong", {}, String(count)))));
}

function said(parts) {
  return parts.map(([, text, count]) => `${text} ${count}`).join(", ");
}

function runsChart({ runs, since }) {
  const totals = STATUSES.map((status) => [status, stateText(`run_${status}`), sum(runs.map((each) => each.counts[status] ?? 0))]).filter(([, , count]) => count);
  const total = sum(totals.map(([, , count]) => count));
  const most = Math.max(1, ...runs.map((each) => sum(Object.values(each.counts))));
  const step = WIDTH / runs.length;
  const columns = runs.flatMap((each, index) => column(each, index * step + 1, step - 2, most));
  const picture = s(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT + 1}`, role: "img", "aria-label": t("chart.runs_said", { total, parts: said(totals) }) },
    s("line", { x1: 0, x2: WIDTH, y1: HEIGHT + 0.5, y2: HEIGHT + 0.5, class: "axis" }),
    columns,
  );
  const ends = h("div", { class: "ends quiet" }, when(since), t("chart.now"));
  return figure(t("chart.runs"), total, [picture, ends], legendOf(totals));
}

function column({ counts }, x, width, most) {
  let y = HEIGHT;
  return STATUSES.filter((status) => counts[status]).map((status) => {
    const height = Math.max((counts[status] / most) * HEIGHT, 2);
    y -= height;
    return s("rect", { x, y, width, height, class: `fill-${status}` });
  });
}

const GROUPS = ["minute", "minutes", "hour", "day", "longer"];

function approvalsChart({ approvals, approval_median_seconds: median }) {
  const parts = approvals.map(({ count }, index) => [GROUPS[index], t(`chart.${GROUPS[index]}`), count]);
  const total = sum(approvals.map(({ count }) => count));
  const most = Math.max(1, ...approvals.map(({ count }) => count));
  const lines = parts.flatMap(([, text, count], index) => {
    const y = index * LINE;
    return [
      s("text", { x: 0, y: y + 12, class: "label" }, text),
      s("rect", { x: 84, y: y + 2, height: LINE - 6, width: Math.max((count / most) * (WIDTH - 120), count ? 3 : 0), class: "fill-approval" }),
      s("text", { x: WIDTH, y: y + 12, class: "label number" }, String(count)),
    ];
  });
  const label = t("chart.approvals_said", { total, parts: said(parts) });
  const picture = s("svg", { viewBox: `0 0 ${WIDTH} ${parts.length * LINE}`, role: "img", "aria-label": label }, lines);
  const half = median === null ? null : h("p", { class: "quiet" }, t("chart.median", { time: duration(Math.ceil(median)) }));
  return figure(t("chart.approvals"), total, picture, half);
}

function lookupsChart({ lookups }) {
  const parts = VERDICTS.map((verdict) => [verdict, stateText(`verdict_${verdict}`), lookups[verdict] ?? 0]);
  const total = sum(parts.map(([, , count]) => count));
  let x = 0;
  const bars = parts.map(([verdict, , count]) => {
    const width = total ? (count / total) * WIDTH : 0;
    const bar = s("rect", { x, y: 0, width, height: 24, class: `fill-${verdict}` });
    x += width;
    return bar;
  });
  const label = t("chart.lookups_said", { total, parts: said(parts) });
  const picture = s("svg", { viewBox: `0 0 ${WIDTH} 24`, role: "img", "aria-label": label, class: "bar" }, bars);
  return figure(t("chart.lookups"), total, picture, legendOf(parts));
}

function sum(numbers) {
  return numbers.reduce((all, each) => all + each, 0);
}
