// Conversations with their cost, their start tasks, and the state of their sandboxes.

import { batch, get, pages, part } from "./api.js";
import { SANDBOX_GONE, conversation, keyless, title } from "./conversation.js";
import { h, card, section, table } from "./dom.js";
import { money, short, state, when } from "./format.js";
import { live, more } from "./live.js";
import { brief, hasFailed, isReady, stepBar } from "./starts.js";

const CONVERSATIONS = "api/v1/app-conversations";
const STARTS = `${CONVERSATIONS}/start-tasks/search`;

/** Starts to load; fewer where they are long, because each contains its whole first message. */
const MAX_STARTS = 100;
const MAX_LONG_STARTS = 20;
/** Characters of a response that counts as long. */
const LONG_RESPONSE_CHARS = 1_000_000;

const HOUR = 3_600_000;
const SPANS = [["", "at any time"], [24 * HOUR, "in the last day"], [7 * 24 * HOUR, "in the last week"], [30 * 24 * HOUR, "in the last 30 days"]];
const STATES = {
  all: { name: "any state", has: () => true },
  running: { name: "agent running", has: (it) => it.execution_status === "running" },
  failed: { name: "failed", has: (it) => ["error", "stuck"].includes(it.execution_status) || it.sandbox_status === "ERROR" },
  paused: { name: "sandbox paused", has: (it) => it.sandbox_status === "PAUSED" },
  missing: { name: "sandbox deleted", has: (it) => it.sandbox_status === "MISSING" },
};

const link = (it) => h("a", { href: `#/conversations/${part(it.id)}`, "data-at": `open ${it.id}` }, title(it));

function states(it) {
  return h("span", { class: "states" }, state(it.execution_status), h("span", { class: "small" }, "sandbox ", state(it.sandbox_status)));
}

/** The reason of a sandbox's state, if known. */
function cause(it, sandboxes) {
  const detail = sandboxes.get(it.sandbox_id)?.status_detail;
  return detail ?? (it.sandbox_status === "MISSING" ? SANDBOX_GONE : null);
}

function total(items, isMore) {
  const cost = items.reduce((sum, it) => sum + it.metrics.accumulated_cost, 0);
  const count = `${items.length}${isMore ? "+" : ""} ${items.length === 1 ? "conversation" : "conversations"}`;
  return items.length ? h("p", { class: "small", role: "status" }, count, cost ? `, ${money(cost)} in all` : "") : null;
}

function list({ items, starts, sandboxes, more: isMore }, count, refresh) {
  const tasks = new Map(starts.filter(isReady).map((it) => [it.app_conversation_id, it]));
  const columns = [
    { title: "Title", cell: link },
    { title: "State", cell: states },
    { title: "Cause", cell: (it) => cause(it, sandboxes) ?? "–" },
    { title: "Start", cell: (it) => (tasks.has(it.id) ? stepBar(tasks.get(it.id)) : "–") },
    { title: "Model", cell: (it) => it.llm_model ?? "–" },
    { title: "Cost", cell: (it) => money(it.metrics.accumulated_cost), number: true },
    { title: "Updated", cell: (it) => when(it.updated_at) },
  ];
  const open = starts.filter((it) => !isReady(it));
  const requested = (it) => it.request.title || it.request.selected_repository || "Untitled";
  const unfinished = [
    { title: "Start", cell: (it) => h("span", {}, requested(it), " ", h("span", { class: "small" }, short(it.id))) },
    { title: "State", cell: (it) => state(it.status) },
    { title: "Cause", cell: (it) => it.detail ?? "–" },
    { title: "Steps", cell: stepBar },
    { title: "Sandbox", cell: (it) => (it.sandbox_id ? h("a", { href: `#/sandboxes/${part(it.sandbox_id)}` }, short(it.sandbox_id)) : "–") },
    { title: "Requested", cell: (it) => when(it.created_at) },
  ];
  const failed = open.some(hasFailed) ? "Starts that failed or are in progress" : "Starts in progress";
  return [
    card("Conversations", total(items, isMore), table("Conversations", columns, items, { key: (it) => it.id, empty: "No conversations." }), more(count, isMore, refresh)),
    open.length ? section(failed, table(failed, unfinished, open, { key: (it) => it.id })) : null,
  ];
}

/** Opens the list, or one of them. */
export function conversations(place, context) {
  if (context.rest) return conversation(place, context);
  const { signal } = context;
  const count = { count: 1 };
  let wanted = "";
  let span = "";
  let chosen = "all";
  let typed;
  let areLong = false;
  const load = async (until) => {
    const since = span ? new Date(Math.floor(Date.now() / HOUR) * HOUR - Number(span)).toISOString() : "";
    const query = { title__contains: wanted, updated_at__gte: since, include_sub_conversations: true, limit: 50 };
    const [found, started] = await Promise.all([
      pages(`${CONVERSATIONS}/search`, query, count.count, until, keyless),
      get(STARTS, { limit: areLong ? MAX_LONG_STARTS : MAX_STARTS }, until),
    ]);
    areLong ||= JSON.stringify(started.items).length > LONG_RESPONSE_CHARS;
    const ids = [...new Set(found.items.map((it) => it.sandbox_id))];
    const sandboxes = await batch("api/v1/sandboxes", ids, until);
    const causes = [...sandboxes.values()].map(({ id, status_detail }) => ({ id, status_detail }));
    // The API has no filter by state, so this one is of what is loaded.
    const items = found.items.filter(STATES[chosen].has);
    return { ...found, items, starts: started.items.map(brief), causes };
  };
  const choose = (set) => (event) => {
    set(event.target.value);
    count.count = 1;
    refresh();
  };
  const type = (event) => {
    wanted = event.target.value.trim();
    clearTimeout(typed);
    typed = setTimeout(() => refresh(), 300);
  };
  const field = h("input", { type: "search", id: "wanted", oninput: type, placeholder: "part of a title", autocomplete: "off" });
  const state_ = h("select", { id: "wanted-state", onchange: choose((value) => (chosen = value)) }, Object.entries(STATES).map(([value, it]) => h("option", { value }, it.name)));
  const updated = h("select", { id: "wanted-span", onchange: choose((value) => (span = value)) }, SPANS.map(([value, text]) => h("option", { value }, text)));
  place.append(h("div", { class: "filters" }, h("label", {}, "Title ", field), h("label", {}, "State ", state_), h("label", {}, "Updated ", updated)));
  const render = (found) => list({ ...found, sandboxes: new Map(found.causes.map((it) => [it.id, it])) }, count, () => refresh());
  const refresh = live(place, signal, load, render, { isSlow: () => count.count > 2 || areLong });
}
