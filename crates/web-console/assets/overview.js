// The starts of the last hours or days: their number, outcomes and durations.

import { pages } from "./api.js";
import { lines, rows, stacked } from "./charts.js";
import { h, section } from "./dom.js";
import { duration } from "./format.js";
import { live } from "./live.js";
import { STEPS, brief, hasFailed, isCold, isReady, isWarm, quantile, total } from "./starts.js";
import { usageAt } from "./usage.js";

const HOUR = 3_600_000;
/** Pages of a hundred starts that charts use. */
const MAX_PAGES = 10;
const SPANS = [
  { id: "6h", name: "6 hours", parts: 6, part: HOUR },
  { id: "24h", name: "24 hours", parts: 24, part: HOUR },
  { id: "7d", name: "7 days", parts: 7, part: 24 * HOUR },
];
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** The parts of a time span, each from a full hour or day. */
function parts(span, now) {
  const end = new Date(now);
  end.setMinutes(0, 0, 0);
  const isDays = span.part > HOUR;
  if (isDays) end.setHours(0);
  const label = (at) => (isDays ? DAY : CLOCK).format(at);
  // Days may have 23 or 25 hours.
  const start = (ago) =>
    isDays ? new Date(end.getFullYear(), end.getMonth(), end.getDate() - ago).getTime() : end.getTime() - ago * HOUR;
  return Array.from({ length: span.parts }, (_, at) => {
    const ago = span.parts - 1 - at;
    return { from: start(ago), until: start(ago - 1), label: label(start(ago)) };
  });
}

const within = (tasks, part) =>
  tasks.filter((it) => {
    const at = Date.parse(it.created_at);
    return at >= part.from && at < part.until;
  });

function tile(name, value, more) {
  return h("div", { class: "tile" }, h("p", { class: "small" }, name), h("p", { class: "big" }, value), more ? h("p", { class: "small" }, more) : null);
}

function tiles(tasks) {
  const ready = tasks.filter(isReady);
  const failed = tasks.filter(hasFailed);
  const times = ready.map(total);
  const [warm, cold] = [ready.filter(isWarm).length, ready.filter(isCold).length];
  const share = warm + cold ? `${Math.round((100 * warm) / (warm + cold))} %` : "–";
  const rate = tasks.length ? `${((100 * failed.length) / tasks.length).toFixed(failed.length ? 1 : 0)} % of ${tasks.length}` : null;
  return h(
    "div",
    { class: "tiles" },
    tile("Starts", tasks.length, `${ready.length} ready`),
    tile("Failed", failed.length, rate),
    tile("Median time until ready", duration(quantile(times, 0.5)), "p50"),
    tile("95 % are ready within", duration(quantile(times, 0.95)), "p95"),
    tile("Got a warm sandbox", share, warm + cold ? `${warm} of ${warm + cold}` : "none are kept"),
  );
}

const OUTCOMES = [
  { name: "Ready", className: "good" },
  { name: "Failed", className: "bad" },
  { name: "Under way", className: "busy" },
];
const QUANTILES = [
  { name: "p50", className: "step1" },
  { name: "p95", className: "step5" },
];
const OF_STEPS = STEPS.map(([, name], at) => ({ name, className: `step${at}` }));

/** The task at this quantile of all durations. Its steps add up, unlike quantiles of each step. */
function example(tasks, part) {
  const sorted = [...tasks].sort((a, b) => total(a) - total(b));
  return sorted[Math.min(sorted.length - 1, Math.ceil(part * sorted.length) - 1)];
}

function breakdown(label, tasks) {
  return [0.5, 0.95].flatMap((part) => {
    const task = example(tasks, part);
    if (!task) return [];
    return [{ label: `${label} p${part * 100}`, values: STEPS.map(([word]) => task.timings[word] ?? 0), total: duration(total(task)) }];
  });
}

function charts(tasks, span) {
  const all = parts(span, Date.now());
  const ready = tasks.filter(isReady);
  const counts = all.map((part) => {
    const inside = within(tasks, part);
    const [good, bad] = [inside.filter(isReady).length, inside.filter(hasFailed).length];
    return { label: part.label, values: [good, bad, inside.length - good - bad] };
  });
  const times = all.map((part) => {
    const inside = within(ready, part).map(total);
    return { label: part.label, values: [quantile(inside, 0.5), quantile(inside, 0.95)] };
  });
  const warm = ready.filter(isWarm);
  const cold = ready.filter((it) => !isWarm(it));
  const by = span.part > HOUR ? "day" : "hour";
  const kinds = [...breakdown("warm", warm), ...breakdown("cold", cold)];
  return [
    section("Starts", stacked(`Starts per ${by}, by how they ended`, OUTCOMES, counts)),
    section("Durations", lines(`Time until ready, per ${by}`, QUANTILES, times, duration)),
    section("Steps", rows("Time of each step: the median start, and the start at 95 %", OF_STEPS, breakdown("all", ready), duration)),
    section("Warm and cold", kinds.length ? rows("Starts with a warm sandbox, and without", OF_STEPS, kinds, duration) : h("p", { class: "empty" }, "No start was ready yet.")),
  ];
}

/** Opens the view. */
export function overview(place, { signal }) {
  let span = SPANS[1];
  const load = async (until) => {
    const from = parts(span, Date.now())[0].from;
    const query = { created_at__gte: new Date(from).toISOString(), limit: 100 };
    return { span: span.id, ...(await pages("api/v1/app-conversations/start-tasks/search", query, MAX_PAGES, until, brief)) };
  };
  const choose = (event) => {
    span = SPANS.find((it) => it.id === event.target.value);
    refresh();
  };
  const options = SPANS.map((it) => h("option", { value: it.id, selected: it === span }, it.name));
  place.append(h("div", { class: "filters" }, h("label", {}, "The last ", h("select", { onchange: choose, id: "span" }, options)), h("p", { class: "small" }, "Your own starts.")));
  const render = ({ items, more }) => [
    more ? h("p", { class: "small" }, `Only the newest ${items.length} starts are counted.`) : null,
    tiles(items),
    h("div", { class: "two" }, charts(items, span)),
  ];
  const refresh = live(place, signal, load, render, { isSlow: () => true });
  usageAt("api/v1/usage", "What you store", place, signal);
}
