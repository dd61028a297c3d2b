// Conversations, their start tasks, and the state of their sandboxes.

import { batch, get, pages, part, remove } from "./api.js";
import { act, confirm } from "./dialogs.js";
import { button, facts, h, card, section, table } from "./dom.js";
import { money, short, state, when } from "./format.js";
import { live, logs, more } from "./live.js";
import { brief, hasFailed, isReady, stepBar, stepTable } from "./starts.js";

const CONVERSATIONS = "api/v1/app-conversations";
const STARTS = `${CONVERSATIONS}/start-tasks/search`;

/** Starts to load; fewer where they are long, because each contains its whole first message. */
const MAX_STARTS = 100;
const MAX_LONG_STARTS = 20;
/** Characters of a response that counts as long. */
const LONG_RESPONSE_CHARS = 1_000_000;

/** Drops the keys of agent servers, which must not be shown. */
const keyless = ({ session_api_key: key, ...it }) => it;

const title = (it) => it.title || "Untitled";
const link = (it) => h("a", { href: `#/conversations/${part(it.id)}`, "data-at": `open ${it.id}` }, title(it));

function states(it) {
  return h("span", { class: "states" }, state(it.execution_status), h("span", { class: "small" }, "sandbox ", state(it.sandbox_status)));
}

const SANDBOX_GONE = "The sandbox is deleted; the messages are kept.";

/** The reason of a sandbox's state, if known. */
function cause(it, sandboxes) {
  const detail = sandboxes.get(it.sandbox_id)?.status_detail;
  return detail ?? (it.sandbox_status === "MISSING" ? SANDBOX_GONE : null);
}

function list({ items, starts, sandboxes, more: isMore }, count, refresh) {
  const tasks = new Map(starts.filter(isReady).map((it) => [it.app_conversation_id, it]));
  const columns = [
    { title: "Title", cell: link },
    { title: "State", cell: states },
    { title: "Cause", cell: (it) => cause(it, sandboxes) ?? "–" },
    { title: "Start", cell: (it) => (tasks.has(it.id) ? stepBar(tasks.get(it.id)) : "–") },
    { title: "Model", cell: (it) => it.llm_model ?? "–" },
    { title: "Changed", cell: (it) => when(it.updated_at) },
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
  const failed = open.some(hasFailed) ? "Starts that failed or are under way" : "Starts under way";
  return [
    card("Conversations", table("Conversations", columns, items, { key: (it) => it.id, empty: "No conversations." }), more(count, isMore, refresh)),
    open.length ? section(failed, table(failed, unfinished, open, { key: (it) => it.id })) : null,
  ];
}

/** Opens the list, or one of them. */
export function conversations(place, context) {
  if (context.rest) return conversation(place, context);
  const { signal } = context;
  const count = { count: 1 };
  let wanted = "";
  let typed;
  let areLong = false;
  const load = async (until) => {
    const query = { title__contains: wanted, include_sub_conversations: true, limit: 50 };
    const [found, started] = await Promise.all([
      pages(`${CONVERSATIONS}/search`, query, count.count, until, keyless),
      get(STARTS, { limit: areLong ? MAX_LONG_STARTS : MAX_STARTS }, until),
    ]);
    areLong ||= JSON.stringify(started.items).length > LONG_RESPONSE_CHARS;
    const ids = [...new Set(found.items.map((it) => it.sandbox_id))];
    const sandboxes = await batch("api/v1/sandboxes", ids, until);
    const causes = [...sandboxes.values()].map(({ id, status_detail }) => ({ id, status_detail }));
    return { ...found, starts: started.items.map(brief), causes };
  };
  const type = (event) => {
    wanted = event.target.value.trim();
    clearTimeout(typed);
    typed = setTimeout(() => refresh(), 300);
  };
  const field = h("input", { type: "search", id: "wanted", oninput: type, placeholder: "part of a title", autocomplete: "off" });
  place.append(h("div", { class: "filters" }, h("label", {}, "Title ", field)));
  const render = (found) => list({ ...found, sandboxes: new Map(found.causes.map((it) => [it.id, it])) }, count, () => refresh());
  const refresh = live(place, signal, load, render, { isSlow: () => count.count > 2 || areLong });
}

async function take(it) {
  const text = `“${title(it)}” is deleted with its events, for good. Its sandbox goes, too, if no other conversation needs it.`;
  if (!(await confirm("Delete this conversation?", text, "Delete"))) return;
  const done = await act("The conversation is deleted.", () => remove(`${CONVERSATIONS}/${part(it.id)}`));
  if (done) location.hash = "#/conversations";
}

function one({ found, task, sandbox }, context) {
  if (!found) return h("p", { class: "empty" }, "There is no such conversation.");
  context.name(title(found));
  const tokens = found.metrics.accumulated_token_usage;
  const box = sandbox ? h("a", { href: `#/sandboxes/${part(sandbox.id)}` }, short(sandbox.id)) : short(found.sandbox_id);
  return [
    section(
      title(found),
      facts(
        ["Agent", state(found.execution_status)],
        ["Sandbox", h("span", {}, state(found.sandbox_status), " ", box)],
        ["Cause", sandbox?.status_detail ?? (found.sandbox_status === "MISSING" ? SANDBOX_GONE : null)],
        ["Model", found.llm_model],
        ["Repository", found.selected_repository],
        ["Branch", found.selected_branch],
        ["Cost", money(found.metrics.accumulated_cost)],
        ["Tokens", `${tokens.prompt_tokens.toLocaleString("en")} in, ${tokens.completion_tokens.toLocaleString("en")} out`],
        ["Made", when(found.created_at)],
        ["Changed", when(found.updated_at)],
        ["Id", h("code", {}, found.id)],
      ),
      h("div", { class: "line end" }, button("Delete…", () => take(found), { kind: "danger", at: "delete" })),
    ),
    task
      ? section(
          "Start",
          facts(["State", state(task.status)], ["Cause", task.detail], ["Requested", when(task.created_at)]),
          task.notes.length ? h("ul", {}, task.notes.map((it) => h("li", {}, it))) : null,
          stepTable(task),
        )
      : null,
  ];
}

function conversation(place, context) {
  const { signal, rest } = context;
  const load = async (until) => {
    const [[found], started] = await Promise.all([
      get(CONVERSATIONS, { ids: rest }, until),
      get(STARTS, { conversation_id__eq: rest, limit: 1 }, until),
    ]);
    const sandboxes = found ? await batch("api/v1/sandboxes", [found.sandbox_id], until) : new Map();
    const [sandbox] = sandboxes.values();
    const { id, status, status_detail } = sandbox ?? {};
    const [task] = started.items.map(brief);
    return { found: found ? keyless(found) : null, task, sandbox: sandbox ? { id, status, status_detail } : null };
  };
  // One log for the whole visit, below the content that is redrawn.
  const below = h("div");
  const render = (shown) => {
    const { sandbox } = shown;
    if (sandbox && sandbox.status !== "MISSING" && !below.firstChild) below.append(logs(sandbox.id, signal));
    return one(shown, context);
  };
  live(place, signal, load, render);
  place.append(below);
}
