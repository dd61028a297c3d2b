// One conversation: what was said and done, an answer, its cost, its start and the log of its sandbox.

import { batch, get, pages, part, patch, post, remove, save } from "./api.js";
import { lines } from "./charts.js";
import { act, ask, confirm, once } from "./dialogs.js";
import { button, facts, h, put, section } from "./dom.js";
import { causeOf, sentence } from "./events.js";
import { money, short, state, tokens, when } from "./format.js";
import { live } from "./live.js";
import { logs } from "./logs.js";
import { brief, hasFailed, isReady, stepTable } from "./starts.js";
import { timeline } from "./timeline.js";

const CONVERSATIONS = "api/v1/app-conversations";
const STARTS = `${CONVERSATIONS}/start-tasks/search`;
/** Pages of a hundred updates that the chart of costs uses, and its points. */
const MAX_STATS_PAGES = 10;
const MAX_POINTS = 40;
const MAX_MESSAGE_CHARS = 100_000;

/** Drops the keys of agent servers, which must not be shown. */
export const keyless = ({ session_api_key: key, ...it }) => it;
export const title = (it) => it.title || "Untitled";
export const SANDBOX_GONE = "The sandbox is deleted; the messages are kept.";

const pathOf = (it) => `${CONVERSATIONS}/${part(it.id)}`;

async function take(it) {
  const text = `“${title(it)}” is deleted with its events, for good. Its sandbox goes, too, if no other conversation needs it.`;
  if (!(await confirm("Delete this conversation?", text, "Delete"))) return;
  const done = await act("The conversation is deleted.", () => remove(pathOf(it)));
  if (done) location.hash = "#/conversations";
}

async function rename(it, refresh) {
  const name = await ask("Rename the conversation", "Title", title(it), "Rename", { maxlength: 1000 });
  if (!name) return;
  await act("The conversation is renamed.", () => patch(pathOf(it), { title: name }));
  refresh();
}

async function pause(it, refresh) {
  const text = "What runs in the sandbox is interrupted and its memory is freed. Its files stay, and it can be resumed.";
  if (!(await confirm("Pause the sandbox?", text, "Pause", { kind: "primary" }))) return;
  await act("The sandbox is being paused.", () => post(`api/v1/sandboxes/${part(it.sandbox_id)}/pause`));
  refresh();
}

const resume = (it, refresh) =>
  once(`resume ${it.sandbox_id}`, async () => {
    await act("The sandbox is being resumed.", () => post(`api/v1/sandboxes/${part(it.sandbox_id)}/resume`));
    await refresh();
  });

/** Stops the agent, and leaves the sandbox running. Only the agent server can; the service passes the request on. */
const stop = (it, refresh) =>
  once(`stop ${it.id}`, async () => {
    await act("The agent stops after its present step.", async () => {
      const [{ conversation_url: url, session_api_key: key }] = await get(CONVERSATIONS, { ids: it.id });
      const [host, path] = url.split("/api/conversations/");
      await post("api/cloud-proxy", { host, method: "POST", path: `/api/conversations/${path}/pause`, headers: { "X-Session-API-Key": key } });
      return true;
    });
    await refresh();
  });

const download = (it) => once(`download ${it.id}`, () => act("The conversation is downloaded.", () => save(`${pathOf(it)}/download`, {}, `conversation-${it.id}.zip`).then(() => true)));

async function setPublic(it, isPublic, refresh) {
  await act(isPublic ? "The conversation is marked as public." : "The conversation is no longer marked as public.", () => patch(pathOf(it), { public: isPublic }));
  refresh();
}

function actions(it, refresh) {
  const status = it.sandbox_status;
  return h(
    "div",
    { class: "line" },
    it.execution_status === "running" && status === "RUNNING" ? button("Stop the agent", () => stop(it, refresh), { at: "stop" }) : null,
    status === "RUNNING" || status === "STARTING" ? button("Pause…", () => pause(it, refresh), { at: "pause" }) : null,
    status === "PAUSED" || status === "ERROR" ? button("Resume", () => resume(it, refresh), { at: "resume" }) : null,
    button("Rename…", () => rename(it, refresh), { at: "rename" }),
    button("Download", () => download(it), { at: "download" }),
    button("Delete…", () => take(it), { kind: "danger", at: "delete" }),
  );
}

/** Why the conversation failed, in one sentence, with the whole text to unfold. */
function problem({ found, task, sandbox, error }) {
  const fails = ["error", "stuck"].includes(found.execution_status);
  let [cause, whole] = [null, null];
  if (fails && error) [cause, whole] = [causeOf(error), error.detail];
  else if (found.execution_status === "stuck") cause = "The agent repeats itself and makes no progress.";
  else if (found.sandbox_status === "ERROR") [cause, whole] = [sentence(sandbox?.status_detail) || "The sandbox failed.", sandbox?.status_detail];
  else if (fails) cause = "The agent failed and gave no reason. The sandbox's log may say more.";
  else if (task && hasFailed(task)) [cause, whole] = [sentence(task.detail) || "The start failed.", task.detail];
  if (!cause) return null;
  const hasMore = whole && whole.trim() !== cause;
  return h(
    "div",
    { class: "failure", role: "alert" },
    h("p", {}, h("strong", {}, "Failed: "), cause),
    hasMore ? h("details", { "data-at": "whole error" }, h("summary", {}, "Show the whole error"), h("pre", { class: "output" }, whole)) : null,
  );
}

function summary(shown, refresh) {
  const { found, sandbox, hosts } = shown;
  const waiting = hosts ? h("a", { href: "#/network", "data-at": "network" }, `${hosts} ${hosts === 1 ? "host waits" : "hosts wait"} for your approval`) : null;
  const usage = found.metrics.accumulated_token_usage;
  const box = sandbox ? h("a", { href: `#/sandboxes/${part(sandbox.id)}`, "data-at": "sandbox" }, short(sandbox.id)) : short(found.sandbox_id);
  const isPublic = h("input", { type: "checkbox", role: "switch", class: "switch", id: "is-public", checked: found.public === true, "data-at": "public", onchange: (event) => setPublic(found, event.target.checked, refresh) });
  return section(
    "Details",
    facts(
      ["Agent", state(found.execution_status)],
      ["Sandbox", h("span", {}, state(found.sandbox_status), " ", box)],
      ["Cause", sandbox?.status_detail && found.sandbox_status !== "ERROR" ? sandbox.status_detail : found.sandbox_status === "MISSING" ? SANDBOX_GONE : null],
      ["Network", waiting],
      ["Model", found.llm_model],
      ["Repository", found.selected_repository],
      ["Branch", found.selected_branch],
      ["Cost", money(found.metrics.accumulated_cost)],
      ["Tokens", `${tokens(usage.prompt_tokens)} in, ${tokens(usage.completion_tokens)} out`],
      ["Created", when(found.created_at)],
      ["Updated", when(found.updated_at)],
      ["Public", h("label", { class: "line" }, isPublic, h("span", { class: "small" }, "for clients that share conversations"))],
      ["Id", h("code", {}, found.id)],
    ),
  );
}

function startSection(task) {
  return section(
    "Start",
    facts(["State", state(task.status)], ["Cause", isReady(task) ? null : task.detail], ["Requested", when(task.created_at)]),
    task.notes.length ? h("ul", {}, task.notes.map((it) => h("li", {}, it))) : null,
    stepTable(task),
  );
}

/** Totals over all models of an update of statistics. */
function totals({ timestamp, value }) {
  const usages = Object.values(value?.usage_to_metrics ?? {});
  const sum = (of) => usages.reduce((all, it) => all + (Number(of(it)) || 0), 0);
  return {
    at: /Z|[+-]\d\d:?\d\d$/.test(timestamp) ? timestamp : `${timestamp}Z`,
    cost: sum((it) => it.accumulated_cost),
    input: sum((it) => it.accumulated_token_usage?.prompt_tokens),
    output: sum((it) => it.accumulated_token_usage?.completion_tokens),
  };
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

/** At most `MAX_POINTS` of the points, with the first and the last one. */
function thin(points) {
  const step = (points.length - 1) / (MAX_POINTS - 1);
  return points.length <= MAX_POINTS ? points : Array.from({ length: MAX_POINTS }, (_, at) => points[Math.round(at * step)]);
}

function usageCharts(points) {
  const column = (values) => (it) => ({ label: CLOCK.format(new Date(it.at)), values: values(it) });
  return section(
    "Cost and tokens over time",
    h(
      "div",
      { class: "two" },
      lines("Cost so far, in US dollars", [{ name: "Cost", className: "step1" }], points.map(column((it) => [it.cost])), (value) => `$${value.toFixed(value < 1 ? 3 : 2)}`),
      lines("Tokens so far", [{ name: "In", className: "step1" }, { name: "Out", className: "step5" }], points.map(column((it) => [it.input, it.output])), tokens),
    ),
  );
}

/** Shows the charts and renews them when the statistics change. Returns the function that renews. */
function usageOverTime(id, place, signal) {
  let isLoading = false;
  return async () => {
    if (isLoading || signal.aborted) return;
    isLoading = true;
    try {
      const query = { kind__eq: "ConversationStateUpdateEvent", sort_order: "TIMESTAMP_DESC", limit: 100 };
      const keep = ({ key, timestamp, value }) => (key === "stats" ? totals({ timestamp, value }) : null);
      const { items } = await pages(`api/v1/conversation/${part(id)}/events/search`, query, MAX_STATS_PAGES, signal, keep);
      const points = items.filter(Boolean).reverse();
      put(place, points.length > 1 ? usageCharts(thin(points)) : null);
    } catch {
      // The chart is an extra; the next update tries again.
    }
    isLoading = false;
  };
}

/** The form for an answer. `current()` is the conversation as it was last loaded. */
function composer(current, refresh) {
  const field = h("textarea", { id: "answer", rows: 3, required: true, maxlength: MAX_MESSAGE_CHARS, placeholder: "Write to the agent", "aria-describedby": "answer-help" });
  const send = async () => {
    const text = field.value.trim();
    const it = current();
    if (!text || !it) return;
    await once(`send ${it.id}`, async () => {
      const content = [{ type: "text", text }];
      const isRunning = it.sandbox_status === "RUNNING";
      const sent = await act(isRunning ? "The message is sent." : "The message is kept until the sandbox runs.", async () => {
        if (isRunning) return post(`${pathOf(it)}/send-message`, { content });
        const kept = await post(`api/v1/conversations/${part(it.id)}/pending-messages`, { content });
        if (it.sandbox_status === "PAUSED") await post(`api/v1/sandboxes/${part(it.sandbox_id)}/resume`);
        return kept;
      });
      if (sent) field.value = "";
      field.focus();
      refresh();
    });
  };
  const submit = (event) => {
    event.preventDefault();
    send();
  };
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      send();
    }
  });
  const help = h("span", { class: "small", id: "answer-help" }, "Ctrl-Enter sends. A paused sandbox resumes.");
  return h("form", { class: "composer", onsubmit: submit }, h("label", { class: "unseen", for: "answer" }, "Message to the agent"), field, h("div", { class: "line" }, h("button", { type: "submit", class: "primary" }, "Send"), help));
}

/** Opens the page of a conversation. */
export function conversation(place, context) {
  const { signal, rest } = context;
  let current = null;
  const load = async (until) => {
    const [[found], started] = await Promise.all([
      get(CONVERSATIONS, { ids: rest }, until),
      get(STARTS, { conversation_id__eq: rest, limit: 1 }, until),
    ]);
    const fails = ["error", "stuck"].includes(found?.execution_status);
    const newest = { kind__eq: "ConversationErrorEvent", sort_order: "TIMESTAMP_DESC", limit: 1 };
    const asks = found?.sandbox_status === "RUNNING";
    const [sandboxes, errors, requests] = await Promise.all([
      found ? batch("api/v1/sandboxes", [found.sandbox_id], until) : new Map(),
      fails ? get(`api/v1/conversation/${part(rest)}/events/search`, newest, until) : { items: [] },
      asks ? get("api/v1/egress/requests/search", { decision__eq: "pending" }, until) : { items: [] },
    ]);
    const [sandbox] = sandboxes.values();
    const { id, status, status_detail } = sandbox ?? {};
    const [task] = started.items.map(brief);
    const [error] = errors.items;
    return { found: found ? keyless(found) : null, task, sandbox: sandbox ? { id, status, status_detail } : null, error, hosts: requests.items.filter((it) => it.sandbox_id === id).length };
  };
  // What is above is redrawn; the timeline, the charts and the log are made once for the whole visit.
  const [talk, details, usage, start, below] = [h("div"), h("div"), h("div"), h("div"), h("div")];
  const render = (shown) => {
    const { found, sandbox, task } = shown;
    current = found;
    if (!found) {
      place.classList.add("is-missing");
      return h("p", { class: "empty" }, "There is no such conversation.");
    }
    context.name(title(found));
    context.heading.textContent = title(found);
    if (!talk.firstChild) {
      const renew = usageOverTime(rest, usage, signal);
      const hear = (event) => {
        if (event.kind === "ConversationStateUpdateEvent" && event.key === "stats") renew();
        if (event.kind === "ConversationStateUpdateEvent" && event.key === "execution_status") refresh();
      };
      talk.append(section("Conversation", timeline(rest, signal, hear), composer(() => current, () => refresh())));
      renew();
    }
    put(details, summary(shown, () => refresh()));
    put(start, task ? startSection(task) : null);
    if (sandbox && sandbox.status !== "MISSING" && !below.firstChild) below.append(logs(sandbox.id, signal));
    return [h("div", { class: "line" }, state(found.execution_status), actions(found, () => refresh())), problem(shown)].filter(Boolean);
  };
  const refresh = live(place, signal, load, render);
  place.append(h("div", { class: "conversation" }, talk, details), usage, start, below);
}
