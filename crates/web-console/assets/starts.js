// Start tasks: the duration of each step, the outcome, and whether a warm sandbox was used.

import { h, svg } from "./dom.js";
import { duration } from "./format.js";

/** The members that are shown. The request may be long (files in the first message), so it is dropped. */
export const brief = ({ id, status, detail, notes, sandbox_id, app_conversation_id, timings, created_at, request }) => ({
  id, status, detail, notes, sandbox_id, app_conversation_id, timings, created_at,
  request: { title: request.title, selected_repository: request.selected_repository },
});

/** The steps in order, by their words in the API. */
export const STEPS = [
  ["WORKING", "Accepted"],
  ["WAITING_FOR_SANDBOX", "Sandbox"],
  ["PREPARING_REPOSITORY", "Repository"],
  ["RUNNING_SETUP_SCRIPT", "Setup script"],
  ["SETTING_UP_GIT_HOOKS", "Git hooks"],
  ["SETTING_UP_SKILLS", "Skills"],
  ["STARTING_CONVERSATION", "Conversation"],
];

/** `{word, name, ms, at}` of each step that took place; `at` is its index in `STEPS`, which decides its colour. */
export function steps(task) {
  const all = STEPS.map(([word, name], at) => ({ word, name, at, ms: task.timings[word] }));
  return all.filter((it) => it.ms !== undefined);
}

/** Milliseconds from the first step to the end, or until now. */
export const total = (task) => steps(task).reduce((sum, it) => sum + it.ms, 0);

export const isReady = (task) => task.status === "READY";
export const hasFailed = (task) => task.status === "ERROR";
export const isWarm = (task) => "WARM_SANDBOX" in task.timings;
export const isCold = (task) => "NO_WARM_SANDBOX" in task.timings;

/** The quantile of values. */
export function quantile(values, part) {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(part * sorted.length) - 1)];
}

/** The steps as a small bar, with their sum. */
export function stepBar(task) {
  const parts = steps(task);
  const sum = total(task);
  const summary = parts.map((it) => `${it.name} ${duration(it.ms)}`).join(", ");
  const bar = svg("svg", { class: "steps", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": summary });
  let x = 0;
  for (const it of parts) {
    const width = sum === 0 ? 0 : (100 * it.ms) / sum;
    bar.append(svg("rect", { x, y: 0, width, height: 8, class: `step${it.at}` }, svg("title", {}, `${it.name}: ${duration(it.ms)}`)));
    x += width;
  }
  const kind = isWarm(task) ? h("span", { class: "tag" }, "warm") : null;
  return h("div", { class: "timing" }, h("span", { class: "line" }, duration(sum), kind), parts.length ? bar : null);
}

/** The steps as a table. */
export function stepTable(task) {
  const parts = steps(task);
  const longest = Math.max(1, ...parts.map((it) => it.ms));
  const row = (it) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, it.name),
      h("td", { class: "number" }, duration(it.ms)),
      h(
        "td",
        { class: "wide" },
        svg(
          "svg",
          { class: "steps", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
          svg("rect", { x: 0, y: 0, width: Math.max(0.6, (100 * it.ms) / longest), height: 8, class: `step${it.at}` }),
        ),
      ),
    );
  const head = ["Step", "Time", ""].map((it, at) => h("th", { scope: "col", class: at === 1 ? "number" : null }, it));
  return h(
    "table",
    { class: "plain" },
    h("caption", { class: "unseen" }, "Time of each step"),
    h("thead", {}, h("tr", {}, head)),
    h("tbody", {}, parts.map(row)),
    h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, "Total"), h("td", { class: "number" }, duration(total(task))), h("td"))),
  );
}
