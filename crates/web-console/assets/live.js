// What is on the screen, kept as it is on the server; and logs as they are written.

import { part, stream } from "./api.js";
import { button, failure, h, put } from "./dom.js";

const EVERY = 4000;
const SLOW = 15_000;
/** So many characters of a log are kept on the page. */
const LONGEST_LOG = 400_000;
/** What is written meanwhile is shown together: each addition has the page laid out anew. */
const TOGETHER = 100;
/** So many characters do not wait. They are also what is taken off the beginning at a time. */
const LONGEST_WAIT = 20_000;

const sleep = (ms, signal) =>
  new Promise((done) => {
    // A view may be open for days: each turn takes off what it put on.
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
 * Loads and shows until `signal` ends it. What has not changed is not touched. Answers a function that looks at once, also
 * after a change of what `load` asks for.
 */
export function live(place, signal, load, render, { isSlow = () => false } = {}) {
  let shown = null;
  let turn = 0;
  const trouble = h("div");
  const content = h("div", { class: "stack" }, h("p", { class: "empty" }, "Loading…"));
  place.append(trouble, content);
  const look = async () => {
    turn += 1;
    const mine = turn;
    try {
      const found = await load(signal);
      // A later question was asked meanwhile.
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
    await look();
    while (!signal.aborted) {
      await sleep(isSlow() ? SLOW : EVERY, signal);
      if (!signal.aborted && isWatched()) await look();
    }
  };
  run();
  return look;
}

/** A button that looks further back, where there is more. */
export function more(pages, isMore, look) {
  if (!isMore) return null;
  const wants = () => {
    pages.count += 1;
    look();
  };
  return h("p", { class: "more" }, button("Show older ones", wants, { at: "more" }));
}

/**
 * What a sandbox writes, from its last lines on. It must stay where it is put: what is taken out of the page and put back,
 * be it at once, has lost its place, and so the end that it follows.
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
    while (length > LONGEST_LOG && out.firstChild !== out.lastChild) {
      length -= out.firstChild.length;
      out.firstChild.remove();
    }
    if (atEnd) out.scrollTop = out.scrollHeight;
  };
  const hear = (text) => {
    waiting += text;
    if (waiting.length > LONGEST_WAIT) show();
    else timer ??= setTimeout(show, TOGETHER);
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

