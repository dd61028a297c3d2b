// Formats times, amounts and states.

import { h } from "./dom.js";

const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

/** Formats milliseconds. */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

function distance(at) {
  const seconds = (Date.now() - at.getTime()) / 1000;
  const away = Math.abs(seconds);
  const say = (count, unit) => (seconds < 0 ? `in ${count} ${unit}` : `${count} ${unit} ago`);
  if (away < 5) return "now";
  if (away < 60) return say(Math.round(away), "s");
  if (away < 3600) return say(Math.round(away / 60), "min");
  if (away < 36 * 3600) return say(Math.round(away / 3600), "h");
  return DAY.format(at);
}

/** A time relative to now, with the exact time as a tooltip. */
export function when(text) {
  if (!text) return "–";
  const at = new Date(text);
  return h("time", { datetime: text, title: FULL.format(at) }, distance(at));
}

// Relative times age.
setInterval(() => {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const now = distance(new Date(time.dateTime));
    if (time.textContent !== now) time.textContent = now;
  }
}, 10_000);

/** The beginning of an id, with the whole id as a tooltip. */
export function short(id) {
  return h("code", { class: "id", title: id }, id.length > 14 ? `${id.slice(0, 12)}…` : id);
}

const LOOKS = {
  RUNNING: "good", READY: "good", COMPLETED: "good", ok: "good", finished: "good", idle: "calm",
  approved: "good", approved_for_sandbox: "good", pending: "busy", denied: "odd",
  STARTING: "busy", running: "busy", waiting_for_confirmation: "busy", deleting: "busy",
  PAUSED: "calm", CANCELLED: "calm", paused: "calm", MISSING: "calm", user: "calm",
  ERROR: "bad", FAILED: "bad", SKIPPED: "odd", error: "bad", stuck: "bad", failed: "bad", refused: "odd", admin: "odd",
};

/** A state as a coloured word. */
export function state(word) {
  if (!word) return h("span", { class: "state calm" }, "unknown");
  const text = word.toLowerCase().replaceAll("_", " ");
  return h("span", { class: `state ${LOOKS[word] ?? "busy"}` }, text);
}

/** US dollars. */
export function money(amount) {
  if (!amount) return "–";
  const digits = amount < 1 ? 4 : 2;
  return `$${amount.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: digits })}`;
}

const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** A number of tokens. */
export const tokens = (count) => COMPACT.format(count);

/** A number of bytes. */
export function bytes(count) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let [amount, unit] = [count, 0];
  while (amount >= 1024 && unit < units.length - 1) [amount, unit] = [amount / 1024, unit + 1];
  return `${unit && amount < 10 ? amount.toFixed(1) : Math.round(amount)} ${units[unit]}`;
}
