// API keys: the caller's own, or those of another user, for administrators.

import { get, part, post, remove } from "./api.js";
import { act, confirm, once, showOnce } from "./dialogs.js";
import { button, h, section, table } from "./dom.js";
import { when } from "./format.js";
import { live } from "./live.js";

const DAY = 86_400;
const LIFETIMES = [["never", ""], ["in 30 days", 30 * DAY], ["in 90 days", 90 * DAY], ["in a year", 365 * DAY]];

const showNew = (key) => showOnce("The new key", "Copy it now: it cannot be shown again.", key);
const named = (it) => it.name || it.prefix;

async function rotate(path, it, refresh) {
  const text = "A new key replaces it. The old key stays valid for a day, so that there is time to switch.";
  if (!(await confirm(`Replace the key “${named(it)}”?`, text, "Replace", { kind: "primary" }))) return;
  await once(`rotate ${it.id}`, async () => {
    const made = await act("Key created.", () => post(`${path}/${part(it.id)}/rotate`, {}));
    refresh();
    if (made) await showNew(made.key);
  });
}

async function revoke(path, it, refresh) {
  const text = "Requests with it are refused from now on. It cannot be restored.";
  if (!(await confirm(`Revoke the key “${named(it)}”?`, text, "Revoke"))) return;
  await act("The key is revoked.", () => remove(`${path}/${part(it.id)}`));
  refresh();
}

function actions(path, it, refresh) {
  const of = (text) => ({ at: `${text} ${it.id}`, label: `${text} ${named(it)}` });
  return h(
    "div",
    { class: "line" },
    button("Replace…", () => rotate(path, it, refresh), of("Replace")),
    it.is_current ? null : button("Revoke…", () => revoke(path, it, refresh), { kind: "danger", ...of("Revoke") }),
  );
}

function form(path, refresh) {
  const name = h("input", { id: "key-name", maxlength: 100, autocomplete: "off", placeholder: "what it is for" });
  const life = h("select", { id: "key-life" }, LIFETIMES.map(([text, value]) => h("option", { value }, text)));
  const make = async () => {
    const requested = {};
    if (name.value.trim()) requested.name = name.value.trim();
    if (life.value) requested.expires_in = Number(life.value);
    const made = await act("Key created.", () => post(path, requested));
    refresh();
    if (!made) return;
    name.value = "";
    await showNew(made.key);
  };
  const submit = (event) => {
    event.preventDefault();
    once(`make ${path}`, make);
  };
  return h(
    "form",
    { class: "filters", onsubmit: submit },
    h("label", {}, "Name ", name),
    h("label", {}, "Expires ", life),
    h("button", { type: "submit", class: "primary" }, "Create key"),
  );
}

/** Shows the keys at this path of the API. */
export function keysAt(path, title, place, signal) {
  const columns = [
    { title: "Name", cell: (it) => h("span", {}, it.name ?? "–", " ", it.is_current ? h("span", { class: "tag" }, "this one") : null) },
    { title: "Begins with", cell: (it) => h("code", {}, it.prefix) },
    { title: "Created", cell: (it) => when(it.created_at) },
    { title: "Expires", cell: (it) => (it.expires_at ? when(it.expires_at) : "never") },
    { title: "Last used", cell: (it) => (it.last_used_at ? when(it.last_used_at) : "never") },
    { title: "Created by", cell: (it) => it.made_by ?? "–" },
    { title: "Actions", cell: (it) => actions(path, it, () => refresh()) },
  ];
  place.append(form(path, () => refresh()));
  const load = (until) => get(path, {}, until);
  const refresh = live(place, signal, load, ({ items }) => section(title, table(title, columns, items, { key: (it) => it.id, empty: "No keys." })));
}
