// The starts of the last hours or days: their number, outcomes and durations.

import { pages } from "./api.js";
import { lines, rows, stacked } from "./charts.js";
import { choice, h, section } from "./dom.js";
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
    tile("p50 time to ready", duration(quantile(times, 0.5)), "median of the ready starts"),
    tile("p95 time to ready", duration(quantile(times, 0.95)), "of the ready starts"),
    tile("Warm starts", share, warm + cold ? `${warm} of ${warm + cold}` : "no warm pool"),
  );
}

const OUTCOMES = [
  { name: "Ready", className: "good" },
  { name: "Failed", className: "bad" },
  { name: "In progress", className: "busy" },
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
    section("Starts", stacked(`Starts per ${by}, by outcome`, OUTCOMES, counts)),
    section("Time to ready", lines(`Time to ready, per ${by}`, QUANTILES, times, duration)),
    section("Steps", rows("Time of each step, of the starts at p50 and p95", OF_STEPS, breakdown("all", ready), duration)),
    section("Warm and cold", kinds.length ? rows("Time of each step, warm and cold starts", OF_STEPS, kinds, duration) : h("p", { class: "empty" }, "No start is ready yet.")),
  ];
}

const OWN = { id: "own", name: "yours", path: "api/v1/app-conversations/start-tasks/search", keep: brief };
const EVERYBODY = { id: "all", name: "those of everybody", path: "api/v1/admin/starts", keep: (task) => task };

/** Opens the view. */
export function overview(place, { access, signal }) {
  let span = SPANS[1];
  let whose = access.role === "admin" ? EVERYBODY : OWN;
  const load = async (until) => {
    const from = parts(span, Date.now())[0].from;
    const query = { created_at__gte: new Date(from).toISOString(), limit: 100 };
    return { span: span.id, whose: whose.id, ...(await pages(whose.path, query, MAX_PAGES, until, whose.keep)) };
  };
  const spans = choice("The last", "span", SPANS, span, (it) => {
    span = it;
    refresh();
  });
  const owners = choice("Starts:", "whose", [EVERYBODY, OWN], whose, (it) => {
    whose = it;
    refresh();
  });
  place.append(h("div", { class: "filters" }, spans, access.role === "admin" ? owners : h("p", { class: "small" }, "Your own starts.")));
  const render = ({ items, more }) => [
    more ? h("p", { class: "small" }, `Only the newest ${items.length} starts are counted.`) : null,
    tiles(items),
    items.length ? h("div", { class: "two" }, charts(items, span)) : h("p", { class: "empty" }, "No conversation was started in this time."),
  ];
  const refresh = live(place, signal, load, render, { isSlow: () => true });
  usageAt("api/v1/usage", "Your usage", place, signal);
}
