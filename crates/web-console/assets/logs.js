// The log of a sandbox: its lines with their levels, a filter, a search and a download.

import { part, save, stream } from "./api.js";
import { act } from "./dialogs.js";
import { button, h } from "./dom.js";

/** Lines that stay on the page. */
const MAX_LINES = 5_000;
/** Lines of a download, the most that the service sends. */
const MAX_DOWNLOAD_LINES = 10_000;
/** Lines are collected for this time before they are shown: each addition causes a new layout of the page. */
const APPEND_INTERVAL_MS = 100;

const LEVELS = [
  ["all", "All levels"],
  ["info", "Info and above"],
  ["warning", "Warnings and errors"],
  ["error", "Errors only"],
];
const WORDS = { TRACE: "debug", DEBUG: "debug", INFO: "info", NOTICE: "info", WARN: "warning", WARNING: "warning", ERROR: "error", CRITICAL: "error", FATAL: "error" };
const LEVEL = /\b(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b/;
const TRACEBACK = /^Traceback \(most recent call last\)/;

const text = (value) => (value === undefined || value === null ? "" : String(value));

/** `{level, at, logger, text}` of a line; `level` is `null` if it has none, as lines of a traceback do. */
export function parse(line) {
  if (line.startsWith("{")) {
    try {
      const it = JSON.parse(line);
      const level = WORDS[text(it.levelname ?? it.level ?? it.severity).toUpperCase()] ?? "info";
      const message = text(it.message ?? it.msg ?? it.event);
      const trace = text(it.exc_info ?? it.exception);
      if (message || trace) return { level, at: text(it.asctime ?? it.timestamp ?? it.ts), logger: text(it.name ?? it.logger), text: [message, trace].filter(Boolean).join("\n") };
    } catch {
      // Text that begins like JSON.
    }
  }
  // The level is near the start of a line, behind a time.
  const word = LEVEL.exec(line.slice(0, 80))?.[1];
  const level = TRACEBACK.test(line) ? "error" : (WORDS[word] ?? null);
  return { level, at: "", logger: "", text: line };
}

function element(it, level) {
  return h(
    "div",
    { class: `log-line ${level}` },
    it.at ? h("span", { class: "log-at" }, it.at, " ") : null,
    it.at || it.logger ? h("span", { class: "log-level" }, level, " ") : null,
    it.logger ? h("span", { class: "log-at" }, it.logger, " ") : null,
    it.text,
    "\n",
  );
}

/**
 * Follows the log of a sandbox from its last lines. The element must stay in the page: removing and inserting it again resets
 * its scroll position, and with it the end that it follows.
 */
export function logs(sandbox, signal) {
  const path = `api/v1/sandboxes/${part(sandbox)}/logs`;
  const out = h("div", { class: "log", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Log", "data-least": "all" });
  const status = h("span", { class: "small", role: "status" }, "");
  const again = button("Follow again", () => follow());
  again.hidden = true;
  let wanted = "";
  let last = "info";
  let rest = "";
  let waiting = [];
  let timer;
  const isWanted = (line) => wanted === "" || line.textContent.toLowerCase().includes(wanted);
  const show = () => {
    clearTimeout(timer);
    timer = undefined;
    if (waiting.length === 0) return;
    const atEnd = out.scrollHeight - out.scrollTop - out.clientHeight < 40;
    const lines = waiting.slice(-MAX_LINES).map((line) => {
      const it = parse(line);
      last = it.level ?? last;
      const made = element(it, last);
      made.hidden = !isWanted(made);
      return made;
    });
    waiting = [];
    out.append(...lines);
    while (out.childElementCount > MAX_LINES) out.firstElementChild.remove();
    if (atEnd) out.scrollTop = out.scrollHeight;
  };
  const hear = (piece) => {
    const lines = (rest + piece).split("\n");
    rest = lines.pop();
    waiting.push(...lines);
    if (waiting.length > MAX_LINES) show();
    else timer ??= setTimeout(show, APPEND_INTERVAL_MS);
  };
  const end = () => {
    if (rest) waiting.push(rest);
    rest = "";
    show();
  };
  const follow = async () => {
    again.hidden = true;
    out.replaceChildren();
    rest = "";
    status.textContent = "following";
    try {
      await stream(path, { lines: 500, follow: true }, hear, signal);
      end();
      status.textContent = "ended";
    } catch (error) {
      if (signal.aborted) return;
      end();
      status.textContent = error.request === undefined ? "the connection broke" : error.message;
    }
    again.hidden = false;
  };
  const search = h("input", {
    type: "search", placeholder: "text", autocomplete: "off",
    oninput: (event) => {
      wanted = event.target.value.trim().toLowerCase();
      for (const line of out.children) line.hidden = !isWanted(line);
    },
  });
  const level = h("select", { onchange: (event) => out.setAttribute("data-least", event.target.value) }, LEVELS.map(([value, name]) => h("option", { value }, name)));
  const download = button("Download", () => act("The log is downloaded.", () => save(path, { lines: MAX_DOWNLOAD_LINES }, `${sandbox}.log`).then(() => true)));
  follow();
  return h(
    "section",
    { class: "card", "aria-label": "Log" },
    h("div", { class: "line" }, h("h2", {}, "Sandbox log"), status, again),
    h("div", { class: "filters" }, h("label", {}, "Level ", level), h("label", {}, "Search ", search), download),
    out,
  );
}
