// Events of a conversation as elements: what was said, done, observed, and what went wrong.

import { h } from "./dom.js";
import { markdown } from "./markdown.js";

/** Lines and characters of a text that are shown at once. */
const SHOWN_LINES = 12;
const SHOWN_CHARS = 1_500;
/** Characters of one text that the page holds. */
const MAX_TEXT_CHARS = 200_000;

export const CATEGORIES = [
  ["all", "Everything"],
  ["message", "Messages"],
  ["work", "Actions and results"],
  ["error", "Errors"],
];

const isText = (it) => typeof it === "string" && it.trim() !== "";
const json = (value) => JSON.stringify(value, null, 2);

/** The text of content parts, or of a plain text. */
export function contentText(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((it) => (typeof it === "string" ? it : (it?.text ?? (it?.type === "image" ? "[image]" : "")))).filter(isText).join("\n");
}

/** The time of an event. Agent servers send UTC without a zone. */
export function timeOf(event) {
  const text = String(event.timestamp ?? "");
  if (text === "") return null;
  return /(?:Z|[+-]\d\d:?\d\d)$/.test(text) ? text : `${text}Z`;
}

/** Cuts a text at a line. */
function beginning(text) {
  const lines = text.split("\n").slice(0, SHOWN_LINES).join("\n");
  return lines.length > SHOWN_CHARS ? lines.slice(0, SHOWN_CHARS) : lines;
}

/** A text that is folded if it is long. `render(text)` makes the elements. */
function foldable(text, render) {
  const whole = text.length > MAX_TEXT_CHARS ? `${text.slice(0, MAX_TEXT_CHARS)}\n…` : text;
  const start = beginning(whole);
  if (start.length >= whole.trimEnd().length) return h("div", {}, render(whole));
  const place = h("div", {}, render(`${start.trimEnd()} …`));
  const count = whole.split("\n").length;
  const all = count > SHOWN_LINES ? `Show all ${count} lines` : "Show all";
  const flip = h("button", { type: "button", class: "link", "aria-expanded": "false" }, all);
  flip.addEventListener("click", () => {
    const isOpen = flip.getAttribute("aria-expanded") === "true";
    flip.setAttribute("aria-expanded", String(!isOpen));
    flip.textContent = isOpen ? all : "Show less";
    place.replaceChildren(...[render(isOpen ? `${start.trimEnd()} …` : whole)].flat());
  });
  return h("div", {}, place, flip);
}

const asCode = (text) => [h("pre", { class: "output", tabindex: text.includes("\n") ? "0" : null }, text)];
const prose = (text) => foldable(text, markdown);
const code = (text) => foldable(text, asCode);

/** A detail that is closed at first. */
const more = (title, ...children) => h("details", {}, h("summary", {}, title), children);

/** The argument that tells most about an action. */
const MAIN_ARGUMENTS = ["command", "path", "file_path", "url", "query", "pattern", "code", "task", "prompt"];

/** A word for a tool: `TerminalAction` and `execute_bash` become "terminal" and "execute bash". */
function toolOf(event) {
  const kind = String(event.action?.kind ?? event.observation?.kind ?? "").replace(/(Action|Observation)$/, "");
  const name = isText(event.tool_name) ? event.tool_name : kind;
  return name.replaceAll("_", " ").trim() || "tool";
}

function thoughtOf(event) {
  const parts = [contentText(event.thought), isText(event.action?.thought) ? event.action.thought : ""];
  return parts.filter(isText).join("\n");
}

function action(event) {
  const { kind = "", ...rest } = event.action ?? {};
  const thought = thoughtOf(event);
  if (kind === "FinishAction") return { category: "message", who: "Agent", tone: "agent", title: "finished", body: [thought ? prose(thought) : null, isText(rest.message) ? prose(rest.message) : null] };
  if (kind === "ThinkAction") return { category: "work", who: "Agent", title: "thought", body: [prose(thought || json(rest))] };
  const name = MAIN_ARGUMENTS.find((it) => isText(rest[it]));
  const main = name ? rest[name] : null;
  const others = Object.fromEntries(Object.entries(rest).filter(([member, value]) => member !== name && value !== null && value !== "" && value !== false && member !== "thought"));
  const risk = ["HIGH", "MEDIUM"].includes(event.security_risk) ? h("span", { class: `state ${event.security_risk === "HIGH" ? "bad" : "busy"}` }, `${event.security_risk.toLowerCase()} risk`) : null;
  return {
    category: "work",
    who: "Agent",
    title: h("span", {}, "runs ", h("strong", {}, toolOf(event)), isText(event.summary) ? ` – ${event.summary}` : "", " ", risk),
    body: [
      thought ? prose(thought) : null,
      isText(event.reasoning_content) ? more("Reasoning", prose(event.reasoning_content)) : null,
      main ? code(main) : null,
      Object.keys(others).length ? more("Arguments", asCode(json(others))) : null,
    ],
  };
}

function observation(event) {
  const it = event.observation ?? {};
  const text = contentText(it.content) || contentText(it.output) || contentText(it.text);
  const exit = it.exit_code ?? it.metadata?.exit_code;
  const hasExit = typeof exit === "number" && exit >= 0;
  const isBad = it.is_error === true || (hasExit && exit !== 0);
  return {
    category: isBad ? "error" : "work",
    who: "Result",
    tone: isBad ? "bad" : null,
    title: h("span", {}, "of ", h("strong", {}, toolOf(event)), " ", hasExit ? h("span", { class: `state ${exit === 0 ? "good" : "bad"}` }, `exit code ${exit}`) : null),
    body: [text ? code(text) : h("p", { class: "small" }, "No output.")],
  };
}

const failed = (title, text) => ({ category: "error", who: "Error", tone: "bad", title, body: [text ? code(text) : null] });

const KINDS = {
  MessageEvent(event) {
    const isUser = event.source === "user";
    const text = contentText(event.llm_message?.content);
    return { category: "message", who: isUser ? "You" : "Agent", tone: isUser ? "user" : "agent", title: null, body: [prose(text || "(no text)")] };
  },
  ActionEvent: action,
  ObservationEvent: observation,
  AgentErrorEvent: (event) => failed("The agent could not use a tool", event.error),
  ConversationErrorEvent: (event) => failed(h("span", {}, "The conversation failed ", isText(event.code) ? h("code", {}, event.code) : null), event.detail),
  ServerErrorEvent: (event) => failed("The agent server failed", event.detail ?? event.error),
  UserRejectObservation: (event) => ({ category: "work", who: "You", title: "rejected the action", body: [isText(event.rejection_reason) ? prose(event.rejection_reason) : null] }),
  SystemPromptEvent: (event) => ({ category: "note", who: "System", title: "prompt", body: [more("Show the system prompt", asCode(contentText([event.system_prompt]) || json(event.system_prompt ?? null)))] }),
  PauseEvent: () => ({ category: "note", who: "You", title: "paused the agent", body: [] }),
  InterruptEvent: () => ({ category: "note", who: "You", title: "stopped the agent", body: [] }),
  Condensation: (event) => ({
    category: "note", who: "Agent", title: `condensed ${event.forgotten_event_ids?.length ?? "some"} earlier events`, body: [isText(event.summary) ? more("Summary", prose(event.summary)) : null],
  }),
  CondensationSummaryEvent: (event) => ({ category: "note", who: "Agent", title: "summary", body: [isText(event.summary) ? more("Summary", prose(event.summary)) : null] }),
  ACPToolCallEvent(event) {
    const isBad = event.is_error === true || event.status === "failed";
    const output = contentText(event.raw_output) || (event.raw_output ? json(event.raw_output) : "");
    return {
      category: isBad ? "error" : "work", who: "Agent", tone: isBad ? "bad" : null,
      title: h("span", {}, "runs ", h("strong", {}, event.title ?? event.tool_kind ?? "a tool"), isText(event.status) ? ` – ${event.status.replaceAll("_", " ")}` : ""),
      body: [event.raw_input ? more("Arguments", asCode(json(event.raw_input))) : null, output ? code(output) : null],
    };
  },
  HookExecutionEvent: (event) => ({
    category: "work", who: "Hook", title: String(event.hook_event_type ?? "ran"), body: [isText(event.stdout) ? code(event.stdout) : null, isText(event.stderr) ? code(event.stderr) : null],
  }),
  ConversationStateUpdateEvent(event) {
    if (event.key !== "execution_status" || typeof event.value !== "string") return null;
    return { category: "note", who: "Agent", title: `is ${event.value.replaceAll("_", " ")}`, body: [] };
  },
  // Parts of what other events say.
  TokenEvent: () => null,
  StreamingDeltaEvent: () => null,
  LLMCompletionLogEvent: () => null,
  CondensationRequest: () => null,
};

/** `{category, who, tone, title, body}` of an event; `null` for events that tell a reader nothing. */
export function describe(event) {
  const known = Object.hasOwn(KINDS, event.kind) ? KINDS[event.kind] : null;
  if (known) return known(event);
  return { category: "note", who: String(event.source ?? "Event"), title: String(event.kind ?? "event"), body: [more("Show the event", asCode(json(event)))] };
}

/** Longest sentence of a failure. */
const MAX_SENTENCE_CHARS = 300;
const CAUSES = {
  MaxIterationsReached: "The agent reached its limit of iterations.",
  LLMAuthenticationError: "The model's provider refused the API key.",
  LLMRateLimitError: "The model's provider limits the rate of requests.",
  LLMContextWindowExceedError: "The conversation no longer fits in the model's context.",
  LLMServiceUnavailableError: "The model's provider is not available.",
  LLMTimeoutError: "The model's provider did not answer in time.",
};

/** One sentence of a text that may be a traceback, whose last line says what happened. */
export function sentence(text) {
  const lines = String(text ?? "").split("\n").map((it) => it.trim()).filter(Boolean);
  if (lines.length === 0) return "";
  const isTraceback = lines.some((it) => it.startsWith("Traceback (most recent call last)"));
  const line = isTraceback ? lines.at(-1) : lines[0];
  // `litellm.exceptions.AuthenticationError: litellm.AuthenticationError: …`: names of classes come first.
  const plain = line.replace(/^(?:[A-Za-z_][\w.]*(?:Error|Exception):\s*)+/, "") || line;
  const first = /^.*?[.!?](?=\s|$)/.exec(plain)?.[0] ?? plain;
  return first.length > MAX_SENTENCE_CHARS ? `${first.slice(0, MAX_SENTENCE_CHARS)}…` : first;
}

/** Why a conversation failed, from its `ConversationErrorEvent`. */
export function causeOf(event) {
  const known = Object.hasOwn(CAUSES, event.code) ? CAUSES[event.code] : null;
  const detail = sentence(event.detail);
  if (!known) return detail || String(event.code ?? "The agent failed without a reason.");
  return known;
}
