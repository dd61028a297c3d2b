// A user's usage and quotas.

import { get } from "./api.js";
import { h, section, table } from "./dom.js";
import { bytes } from "./format.js";
import { live } from "./live.js";

const SLOW = { isSlow: () => true };
const NUMBER = new Intl.NumberFormat("en-GB");
const number = (count) => NUMBER.format(count);
const QUOTAS = [
  ["conversations", "Conversations", number],
  ["events", "Events", number],
  ["event_bytes", "Size of events", bytes],
  ["request_bytes", "Size of requests", bytes],
  ["secrets", "Secrets", number],
  ["pending_messages", "Pending messages", number],
];
const STORAGE = {
  shortened: "The quota of events is exhausted: long texts in events are cut. Delete conversations to make room.",
  stopped: "The quota of events is exhausted: new events are not stored. Delete conversations to make room.",
};

const share = (it) => (it.limit ? `${Math.floor((100 * it.used) / it.limit)} %` : "–");
const COLUMNS = [
  { title: "What", cell: (it) => it.title },
  { title: "Used", cell: (it) => it.format(it.used), number: true },
  { title: "Limit", cell: (it) => (it.limit === null ? "none" : it.format(it.limit)), number: true },
  { title: "Share", cell: share, number: true },
];

/** Shows the usage at this path of the API. */
export function usageAt(path, title, place, signal) {
  const render = (usage) => {
    const rows = QUOTAS.map(([name, text, format]) => ({ title: text, format, ...usage[name] }));
    const storage = STORAGE[usage.event_storage];
    const cut = usage.shortened_events;
    return section(
      title,
      storage ? h("p", { class: "state bad" }, storage) : null,
      table(title, COLUMNS, rows),
      cut ? h("p", { class: "small" }, `Long texts were cut in ${number(cut)} stored events.`) : null,
    );
  };
  live(place, signal, (until) => get(path, {}, until), render, SLOW);
}
