// Automations: when they run next, how their runs ended, and why they failed.

import { HAS_WEB_APP, ROOT, get, part, post } from "./api.js";
import { next } from "./cron.js";
import { act, once } from "./dialogs.js";
import { button, card, facts, h, section, table } from "./dom.js";
import { duration, money, state, when } from "./format.js";
import { live, more } from "./live.js";

const AUTOMATIONS = "api/automation/v1";
/** Each shown one is a request for its latest run. */
const PAGE = 20;
/** The most that the automations service sends at once. */
const MAX_SHOWN = 100;
const MAX_RUNS = 50;

const shown = ({ id, name, prompt, trigger, enabled, disabled_detail, timeout, keep_alive }) => ({
  id, name, prompt, trigger, enabled, disabled_detail, timeout, keep_alive,
});
const shownRun = ({ id, status, error_detail, status_detail, trigger_source, conversation_id, cost, created_at, started_at, completed_at }) => ({
  id, status, cause: error_detail ?? status_detail, trigger_source, conversation_id, cost, created_at, started_at, completed_at,
});

/** Why there are no automations; `null` while there are. */
async function absence(signal) {
  const { status, message } = await get("api/automation/health", {}, signal);
  return status === "ok" ? null : message;
}

function trigger(it) {
  const { type, schedule, timezone = "UTC", source, on } = it.trigger;
  if (type === "cron") return [h("code", {}, schedule), timezone === "UTC" ? "" : ` ${timezone}`];
  return `webhook ${source}: ${[on].flat().join(", ")}`;
}

function due(it) {
  if (!it.enabled) return h("span", { class: "state calm", title: it.disabled_detail }, "off");
  if (it.trigger.type !== "cron") return "by webhook";
  const at = next(it.trigger.schedule, it.trigger.timezone ?? "UTC");
  return at ? when(at.toISOString()) : "–";
}

const runsOf = async (id, limit, signal) => {
  const { runs } = await get(`${AUTOMATIONS}/${part(id)}/runs`, { limit }, signal);
  return runs.map(shownRun);
};

const runNow = (it, refresh) =>
  button("Run now", () => once(`run ${it.id}`, async () => {
    await act("The run starts soon.", () => post(`${AUTOMATIONS}/${part(it.id)}/dispatch`));
    await refresh();
  }), { at: `run ${it.id}`, label: `Run ${it.name} now` });

const cause = (run) => run?.cause ?? "–";

/** Opens the list, or one of them. */
export function automations(place, context) {
  if (context.rest) return automation(place, context);
  const count = { count: 1 };
  const load = async (signal) => {
    const absent = await absence(signal);
    if (absent) return { absent };
    const limit = Math.min(MAX_SHOWN, PAGE * count.count);
    const { automations: found, total } = await get(AUTOMATIONS, { limit }, signal);
    const latest = await Promise.all(found.map((it) => runsOf(it.id, 1, signal)));
    return { total, items: found.map((it, at) => ({ ...shown(it), run: latest[at][0] })) };
  };
  const columns = [
    { title: "Automation", cell: (it) => h("a", { href: `#/automations/${part(it.id)}`, "data-at": `open ${it.id}` }, it.name) },
    { title: "Trigger", cell: trigger },
    { title: "Next run", cell: due },
    { title: "Latest run", cell: (it) => (it.run ? h("span", { class: "line" }, state(it.run.status), when(it.run.created_at)) : "–") },
    { title: "Cause", cell: (it) => cause(it.run) },
    { title: "Actions", cell: (it) => runNow(it, () => refresh()) },
  ];
  const render = ({ absent, items, total }) => {
    if (absent) return h("p", { class: "empty" }, absent);
    const own = HAS_WEB_APP ? h("p", {}, h("a", { href: new URL("automations", ROOT).pathname }, "Make and change automations in the web application.")) : null;
    const rest = items.length < Math.min(total, MAX_SHOWN);
    return card("Automations", table("Automations", columns, items, { key: (it) => it.id, empty: "No automations." }), more(count, rest, () => refresh()), own);
  };
  const refresh = live(place, context.signal, load, render, { isSlow: () => true });
}

function automation(place, context) {
  const { signal, rest: id } = context;
  const load = async () => {
    const absent = await absence(signal);
    if (absent) return { absent };
    const [found, runs] = await Promise.all([get(`${AUTOMATIONS}/${part(id)}`, {}, signal), runsOf(id, MAX_RUNS, signal)]);
    return { found: shown(found), runs };
  };
  const took = (it) => (it.started_at && it.completed_at ? duration(Date.parse(it.completed_at) - Date.parse(it.started_at)) : "–");
  const conversation = (it) =>
    it.conversation_id ? h("a", { href: `#/conversations/${part(it.conversation_id.replaceAll("-", ""))}`, "data-at": `open ${it.id}` }, "conversation") : "–";
  const columns = [
    { title: "Started", cell: (it) => when(it.created_at) },
    { title: "State", cell: (it) => state(it.status) },
    { title: "Cause", cell: cause },
    { title: "By", cell: (it) => it.trigger_source },
    { title: "Took", cell: took, number: true },
    { title: "Cost", cell: (it) => money(it.cost), number: true },
    { title: "Conversation", cell: conversation },
  ];
  const render = ({ absent, found, runs }) => {
    if (absent) return h("p", { class: "empty" }, absent);
    context.name(found.name);
    return [
      section(
        "Automation",
        facts(
          ["Name", found.name],
          ["Prompt", found.prompt],
          ["Trigger", h("span", {}, trigger(found))],
          ["Next run", due(found)],
          ["Off because", found.disabled_detail],
          ["Ends after", found.timeout ? duration(found.timeout * 1000) : null],
          ["Sandbox", found.keep_alive ? "kept after a run" : "deleted after a run"],
        ),
        runNow(found, () => refresh()),
      ),
      section("Runs", table("Runs", columns, runs, { key: (it) => it.id, empty: "It has not run yet." })),
    ];
  };
  const refresh = live(place, signal, load, render);
}
