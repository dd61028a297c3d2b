// When a schedule of five fields (cron) fires next, as the automations service reads it.

const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS = [
  { min: 0, max: 59 },
  { min: 0, max: 23 },
  { min: 1, max: 31 },
  { min: 1, max: 12, names: MONTHS },
  // Sunday is 0 and 7.
  { min: 0, max: 7, names: DAYS },
];
const MINUTE = 60_000;
const DAY = 1440 * MINUTE;
/** A 29 February may be eight years away. */
const MAX_DAYS = 8 * 366;

function number(text, { min, names = [] }) {
  const at = names.indexOf(text.toLowerCase());
  return at < 0 ? (/^\d{1,2}$/.test(text) ? Number(text) : NaN) : at + min;
}

/** The values of a field; `null` for a form that is not known here, such as `L`. */
function values(text, field) {
  const found = new Set();
  for (const item of text.split(",")) {
    const [range, step = "1", ...rest] = item.split("/");
    const [from, to = item.includes("/") ? String(field.max) : from, ...more] = range === "*" ? [String(field.min), String(field.max)] : range.split("-");
    const [first, last, by] = [number(from, field), number(to, field), Number(step)];
    const isKnown = rest.length + more.length === 0 && first >= field.min && last <= field.max && first <= last && by >= 1;
    if (!isKnown) return null;
    for (let value = first; value <= last; value += by) found.add(value);
  }
  return found;
}

/** A function that gives the time of day in the zone as if it were UTC, in milliseconds. */
function clock(zone) {
  const parts = { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric" };
  const format = new Intl.DateTimeFormat("en-US", { timeZone: zone, hourCycle: "h23", ...parts });
  return (at) => {
    const found = Object.fromEntries(format.formatToParts(at).map((it) => [it.type, Number(it.value)]));
    return Date.UTC(found.year, found.month - 1, found.day, found.hour, found.minute);
  };
}

/** The instant of a time of day; `null` if the clocks skip it. */
function instant(local, localOf) {
  const guess = local - (localOf(local) - local);
  for (const at of [guess, local - (localOf(guess) - guess)]) if (localOf(at) === local) return at;
  return null;
}

/** The next time after `now` (milliseconds) as a `Date`; `null` if there is none, or the schedule has a form that is not known here. */
export function next(schedule, zone, now = Date.now()) {
  const texts = schedule.trim().split(/\s+/);
  const fields = texts.length === FIELDS.length ? texts.map((text, at) => values(text, FIELDS[at])) : [null];
  if (fields.includes(null)) return null;
  const [minutes, hours, days, months, weekdays] = fields;
  if (weekdays.has(7)) weekdays.add(0);
  const isAny = (text) => text === "*";
  const isDue = (day) => {
    const [byDay, byWeekday] = [days.has(day.getUTCDate()), weekdays.has(day.getUTCDay())];
    // With both fields limited, either is enough.
    const isDay = isAny(texts[2]) || isAny(texts[4]) ? byDay && byWeekday : byDay || byWeekday;
    return isDay && months.has(day.getUTCMonth() + 1);
  };
  const ascending = (set) => [...set].sort((a, b) => a - b);
  let localOf;
  try {
    localOf = clock(zone);
  } catch {
    return null;
  }
  const today = Math.floor(localOf(now) / DAY) * DAY;
  for (let day = today; day <= today + MAX_DAYS * DAY; day += DAY) {
    if (!isDue(new Date(day))) continue;
    for (const hour of ascending(hours)) {
      for (const minute of ascending(minutes)) {
        const at = instant(day + (60 * hour + minute) * MINUTE, localOf);
        if (at !== null && at > now) return new Date(at);
      }
    }
  }
  return null;
}
