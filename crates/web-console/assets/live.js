// Keeps views up to date with the server, and follows logs.

import { part, stream } from "./api.js";
import { button, failure, h, put } from "./dom.js";

const REFRESH_INTERVAL_MS = 4000;
const SLOW_REFRESH_INTERVAL_MS = 15_000;
/** Characters of a log that stay on the page. */
const MAX_LOG_CHARS = 400_000;
/** Text is collected for this time before it is shown: each addition causes a new layout of the page. */
const APPEND_INTERVAL_MS = 100;
/** Characters that are shown immediately. The beginning of the log is removed in pieces of this size. */
const MAX_WAITING_CHARS = 20_000;

const sleep = (ms, signal) =>
  new Promise((done) => {
    // A view may be open for days: each wait removes its listener.
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      done();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });

const isWatched = () => !document.hidden && !document.querySelector("dialog[open]");

/**
 * Loads and renders repeatedly until `signal` aborts. Unchanged content is not touched. Returns a function that refreshes
 * immediately, for changes of what `load` requests.
 */
export function live(place, signal, load, render, { isSlow = () => false } = {}) {
  let shown = null;
  let turn = 0;
  const trouble = h("div");
  const content = h("div", { class: "stack" }, h("p", { class: "empty" }, "Loading…"));
  place.append(trouble, content);
  const refresh = async () => {
    turn += 1;
    const mine = turn;
    try {
      const found = await load(signal);
      // A later request was sent meanwhile.
      if (mine !== turn || signal.aborted) return;
      const text = JSON.stringify(found);
      if (text !== shown) put(content, render(found));
      shown = text;
      trouble.replaceChildren();
    } catch (error) {
      if (signal.aborted || mine !== turn) return;
      trouble.replaceChildren(failure(error));
      if (shown === null) content.replaceChildren();
    }
  };
  const run = async () => {
    await refresh();
    while (!signal.aborted) {
      await sleep(isSlow() ? SLOW_REFRESH_INTERVAL_MS : REFRESH_INTERVAL_MS, signal);
      if (!signal.aborted && isWatched()) await refresh();
    }
  };
  run();
  return refresh;
}

/** A button that loads older items, if there are more. */
export function more(pages, isMore, refresh) {
  if (!isMore) return null;
  const wants = () => {
    pages.count += 1;
    refresh();
  };
  return h("p", { class: "more" }, button("Show older ones", wants, { at: "more" }));
}

/**
 * Follows the log of a sandbox from its last lines. The element must stay in the page: removing and inserting it again resets
 * its scroll position, and with it the end that it follows.
 */
export function logs(sandbox, signal) {
  const out = h("pre", { class: "log", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Log" });
  const status = h("span", { class: "small", role: "status" }, "");
  const again = button("Follow again", () => follow());
  again.hidden = true;
  let length = 0;
  let waiting = "";
  let timer;
  const show = () => {
    clearTimeout(timer);
    timer = undefined;
    if (waiting === "") return;
    const atEnd = out.scrollHeight - out.scrollTop - out.clientHeight < 40;
    out.append(document.createTextNode(waiting));
    length += waiting.length;
    waiting = "";
    while (length > MAX_LOG_CHARS && out.firstChild !== out.lastChild) {
      length -= out.firstChild.length;
      out.firstChild.remove();
    }
    if (atEnd) out.scrollTop = out.scrollHeight;
  };
  const hear = (text) => {
    waiting += text;
    if (waiting.length > MAX_WAITING_CHARS) show();
    else timer ??= setTimeout(show, APPEND_INTERVAL_MS);
  };
  const follow = async () => {
    again.hidden = true;
    out.replaceChildren();
    length = 0;
    status.textContent = "following";
    try {
      await stream(`api/v1/sandboxes/${part(sandbox)}/logs`, { lines: 500, follow: true }, hear, signal);
      show();
      status.textContent = "ended";
    } catch (error) {
      if (signal.aborted) return;
      show();
      status.textContent = error.request === undefined ? "the connection broke" : error.message;
    }
    again.hidden = false;
  };
  follow();
  return h("section", { class: "card", "aria-label": "Log" }, h("div", { class: "line" }, h("h2", {}, "Log"), status, again), out);
}

