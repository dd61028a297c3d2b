// Keeps views up to date with the server.

import { button, failure, h, put } from "./dom.js";

const REFRESH_INTERVAL_MS = 4000;
const SLOW_REFRESH_INTERVAL_MS = 15_000;
/** Waits, or until the signal aborts. */
export const sleep = (ms, signal) =>
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
