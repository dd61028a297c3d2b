// The events of a conversation in the order in which they happened: the newest ones first on the page's screen, older ones on
// request, new ones as they arrive.

import { get, part, stream } from "./api.js";
import { button, failure, h } from "./dom.js";
import { CATEGORIES, describe, timeOf } from "./events.js";
import { when } from "./format.js";
import { sleep } from "./live.js";

const PAGE_EVENTS = 50;
/** Events that arrive and stay on the page. */
const MAX_EVENTS = 2_000;
/** Pages that one click on the way to the beginning loads. */
const MAX_PAGES_AT_ONCE = 40;
const RECONNECT_INTERVAL_MS = 3_000;
/** Events are loaded after this time even if the stream did not open. */
const OPEN_TIMEOUT_MS = 5_000;

/** An event as an element. */
function element(event) {
  const it = describe(event);
  if (!it) return null;
  const at = timeOf(event);
  const time = at ? h("span", { class: "small" }, when(at)) : null;
  const head = h("p", { class: "event-head" }, h("strong", { class: "event-who" }, it.who), it.title ? [" ", it.title] : null, " ", time);
  return h("article", { class: it.tone ? `event ${it.tone}` : "event", "data-category": it.category, "data-event": event.id, "aria-label": it.who }, head, it.body);
}

/** Splits a stream of server-sent events. `hear({id, event, data})` is called for each. */
export function sseReader(hear) {
  let rest = "";
  return (piece) => {
    const blocks = (rest + piece.replaceAll("\r\n", "\n")).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const message = {};
      for (const line of block.split("\n")) {
        const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
        if (name) message[name] = value;
      }
      hear(message);
    }
  };
}

/** Shows the events. `changed(event)` is called for each that arrives. */
export function timeline(conversation, signal, changed) {
  const base = `api/v1/conversation/${part(conversation)}/events`;
  const known = new Set();
  let older = null;
  let wanted = "";

  const list = h("div", { class: "events", "data-show": "all" });
  const box = h("div", { class: "timeline", tabindex: "0", role: "log", "aria-label": "What was said and done", "aria-live": "polite" });
  const trouble = h("div");
  const status = h("span", { class: "small", role: "status" });
  const loadOlder = button("Show older ones", () => showOlder(), { at: "older" });
  const loadAll = button("Go to the beginning", () => showBeginning(), { at: "beginning" });
  const start = h("p", { class: "more" }, loadOlder, " ", loadAll);
  const empty = h("p", { class: "empty" }, "Nothing was said yet.");
  box.append(start, empty, list);

  const atEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  const toEnd = () => {
    box.scrollTop = box.scrollHeight;
  };
  const matches = (it) => wanted === "" || it.textContent.toLowerCase().includes(wanted);
  const make = (events) =>
    events
      .filter((event) => event?.id && !known.has(event.id) && known.add(event.id))
      .map(element)
      .filter(Boolean)
      .map((it) => {
        it.hidden = !matches(it);
        return it;
      });
  const tidy = () => {
    start.hidden = older === null;
    empty.hidden = list.childElementCount > 0;
    const count = list.childElementCount;
    status.textContent = `${count}${older === null ? "" : "+"} ${count === 1 ? "entry" : "entries"}`;
  };
  const addNew = (events) => {
    const made = make(events);
    const follows = atEnd();
    list.append(...made);
    tidy();
    if (follows) toEnd();
    for (const event of events) changed(event);
    // Begins anew with the newest ones; a reader of older ones keeps them.
    if (follows && list.childElementCount > MAX_EVENTS) {
      known.clear();
      list.replaceChildren();
      guarded(loadNewest);
    }
  };
  const search = (query) => get(`${base}/search`, { sort_order: "TIMESTAMP_DESC", limit: PAGE_EVENTS, ...query }, signal);
  /** Prepends a page of older events; the reader keeps the place. */
  const prepend = async () => {
    const page = await search({ page_id: older });
    const before = box.scrollHeight - box.scrollTop;
    list.prepend(...make(page.items.reverse()));
    older = page.next_page_id ?? null;
    tidy();
    box.scrollTop = box.scrollHeight - before;
  };
  const guarded = async (what) => {
    loadOlder.disabled = true;
    loadAll.disabled = true;
    try {
      await what();
      trouble.replaceChildren();
    } catch (error) {
      if (!signal.aborted) trouble.replaceChildren(failure(error));
    }
    loadOlder.disabled = false;
    loadAll.disabled = false;
  };
  const showOlder = () => guarded(prepend);
  const showBeginning = () =>
    guarded(async () => {
      for (let page = 0; page < MAX_PAGES_AT_ONCE && older !== null; page += 1) await prepend();
      box.scrollTop = 0;
      box.focus();
    });

  /** Loads the newest events: at first, and after a break of the stream. */
  const loadNewest = async () => {
    const isFirst = known.size === 0;
    const page = await search({});
    if (isFirst) older = page.next_page_id ?? null;
    addNew(page.items.reverse());
    if (isFirst) toEnd();
  };
  const follow = async () => {
    while (!signal.aborted) {
      const connection = new AbortController();
      try {
        let began;
        const open = new Promise((done) => {
          began = done;
        });
        // The stream is open before the newest events are loaded: none is missed in between.
        const reader = sseReader(({ event, data }) => {
          began();
          if (data === undefined || event !== undefined) return;
          try {
            addNew([JSON.parse(data)]);
          } catch {
            // A cut event; the next load has it.
          }
        });
        const streaming = stream(`${base}/stream`, { from: "now" }, reader, AbortSignal.any([signal, connection.signal]));
        // It is awaited below, unless loading fails before.
        streaming.catch(() => {});
        await Promise.race([open, streaming, sleep(OPEN_TIMEOUT_MS, signal)]);
        await loadNewest();
        trouble.replaceChildren();
        await streaming;
      } catch (error) {
        if (signal.aborted) return;
        trouble.replaceChildren(failure(error));
      }
      connection.abort();
      await sleep(RECONNECT_INTERVAL_MS, signal);
    }
  };
  follow();

  const kind = h("select", { id: "event-kind", onchange: (event) => list.setAttribute("data-show", event.target.value) }, CATEGORIES.map(([value, text]) => h("option", { value }, text)));
  const field = h("input", {
    id: "event-search", type: "search", autocomplete: "off", placeholder: "in what is shown",
    oninput: (event) => {
      wanted = event.target.value.trim().toLowerCase();
      for (const it of list.children) it.hidden = !matches(it);
    },
  });
  const newest = button("Newest", () => {
    toEnd();
    box.focus();
  });
  return h("div", { class: "stack tight" }, h("div", { class: "filters" }, h("label", {}, "Show ", kind), h("label", {}, "Search ", field), newest, status), trouble, box);
}
