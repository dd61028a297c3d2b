// For administrators: users and the audit log.

import { SIGN_IN, get, pages, part, patch, post, remove } from "./api.js";
import { act, confirm, once, showOnce } from "./dialogs.js";
import { button, facts, h, card, section, table } from "./dom.js";
import { short, state, when } from "./format.js";
import { keysAt } from "./keys.js";
import { live, more } from "./live.js";
import { usageAt } from "./usage.js";

const USERS = "api/v1/admin/users";
const pathOf = (it) => `${USERS}/${part(it.id)}`;
const ROLES = { user: "user", admin: "administrator" };
const roles = (chosen) => Object.entries(ROLES).map(([value, text]) => h("option", { value, selected: value === chosen }, text));

async function setRole(it, role, refresh) {
  const text = role === "admin" ? "Administrators see and change all users, their keys and the audit log." : "The user keeps their own conversations, sandboxes and keys.";
  if (await confirm(`Make ${it.id} ${role === "admin" ? "an administrator" : "a user"}?`, text, "Change the role", { kind: "primary" })) {
    await act("The role is changed.", () => patch(pathOf(it), { role }));
  }
  refresh();
}

async function setDisabled(it, disabled, refresh) {
  const text = disabled ? "Their sessions and keys end at once, and their sandboxes are paused. Nothing is deleted." : "They can sign in again.";
  if (await confirm(`${disabled ? "Disable" : "Enable"} ${it.id}?`, text, disabled ? "Disable" : "Enable")) {
    await act(disabled ? "The user is disabled." : "The user is enabled.", () => patch(pathOf(it), { disabled }));
  }
  refresh();
}

async function deleteUser(it, refresh) {
  const text = "All of their conversations, sandboxes, secrets and keys are deleted, for good.";
  if (!(await confirm(`Delete ${it.id}?`, text, "Delete"))) return;
  await act("The user is being deleted.", () => remove(pathOf(it)));
  refresh();
}

/** Makes a link by which the user sets a password, and shows it once. */
const makeLink = (it) =>
  once(`link ${it.id}`, async () => {
    const made = await act("The link is made.", () => post(`${pathOf(it)}/password-link`));
    if (made) await showOnce(`A link for ${it.id}`, "It sets a new password and works once, for a day. Its holder becomes this user; it cannot be shown again.", made.link);
  });

function createUser(refresh) {
  const name = h("input", { id: "user-name", required: true, maxlength: 128, pattern: "\\S+", title: "a name without spaces", autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const role = h("select", { id: "user-role" }, roles("user"));
  const submit = (event) => {
    event.preventDefault();
    once("create a user", async () => {
      const made = await act("The user is created.", () => post(USERS, { id: name.value.trim(), role: role.value }));
      if (made) name.value = "";
      refresh();
      if (made && SIGN_IN === "session") await makeLink(made);
    });
  };
  return h("form", { class: "filters", onsubmit: submit }, h("label", {}, "Name ", name), h("label", {}, "Role ", role), h("button", { type: "submit", class: "primary" }, "Create user"));
}

/** Whether the service can disable users: its answers then say whether they are. */
const canDisable = (it) => "disabled" in it || "disabled_at" in it;
const isDisabled = (it) => Boolean(it.disabled ?? it.disabled_at);

function userState(it) {
  if (it.deleted_at) return state("deleting");
  return isDisabled(it) ? h("span", { class: "state bad" }, "disabled") : h("span", { class: "state good" }, "active");
}

function userActions(it, own, refresh) {
  if (it.deleted_at || it.id === own) return "–";
  const of = (text) => ({ at: `${text} ${it.id}`, label: `${text} ${it.id}` });
  return h(
    "div",
    { class: "line" },
    SIGN_IN === "session" ? button("Password link…", () => makeLink(it), of("Password link of")) : null,
    canDisable(it) ? button(isDisabled(it) ? "Enable…" : "Disable…", () => setDisabled(it, !isDisabled(it), refresh), of(isDisabled(it) ? "Enable" : "Disable")) : null,
    button("Delete…", () => deleteUser(it, refresh), { kind: "danger", ...of("Delete") }),
  );
}

function oneUser(place, { signal, rest, name, heading }) {
  name(rest);
  heading.textContent = rest;
  const path = `${USERS}/${part(rest)}`;
  const profile = (it) => section("Profile", facts(["Role", state(it.role)], ["State", userState(it)], ["Created", when(it.created_at)], ["Deletion began", it.deleted_at ? when(it.deleted_at) : null]));
  live(place, signal, (until) => get(path, {}, until), profile, { isSlow: () => true });
  keysAt(`${path}/keys`, `Keys of ${rest}`, place, signal);
  usageAt(`${path}/usage`, `Usage of ${rest}`, place, signal);
}

/** Opens the list of users, or one of them. */
export function users(place, context) {
  if (context.rest) {
    oneUser(place, context);
    return;
  }
  const { signal, access } = context;
  const count = { count: 1 };
  let wanted = "";
  // A role that was declined is shown as it is: the list is drawn anew.
  let draw = 0;
  const again = () => {
    draw += 1;
    return refresh();
  };
  const link = (it) => h("a", { href: `#/users/${part(it.id)}`, "data-at": `open ${it.id}` }, it.id);
  const role = (it) => {
    if (it.id === access.user_id || it.deleted_at) return h("span", {}, state(it.role), " ", it.id === access.user_id ? h("span", { class: "tag" }, "you") : null);
    return h("select", { "aria-label": `Role of ${it.id}`, "data-at": `role ${it.id}`, onchange: (event) => setRole(it, event.target.value, again) }, roles(it.role));
  };
  const columns = [
    { title: "User", cell: link },
    { title: "Role", cell: role },
    { title: "State", cell: userState },
    { title: "Created", cell: (it) => when(it.created_at) },
    { title: "Actions", cell: (it) => userActions(it, access.user_id, again) },
  ];
  const search = h("input", { type: "search", id: "user-search", placeholder: "part of a name", autocomplete: "off", oninput: (event) => {
    wanted = event.target.value.trim().toLowerCase();
    refresh();
  } });
  place.append(h("section", { class: "card", "aria-label": "New user" }, createUser(again)), h("div", { class: "filters" }, h("label", {}, "Search ", search)));
  const load = async (until) => {
    const found = await pages(USERS, { limit: 100 }, count.count, until);
    return { ...found, items: found.items.filter((it) => it.id.toLowerCase().includes(wanted)), draw };
  };
  const render = ({ items, more: isMore }) => card("Users", table("Users", columns, items, { key: (it) => it.id, empty: "No user matches." }), more(count, isMore, again));
  const refresh = live(place, signal, load, render, { isSlow: () => true });
}

const HOUR = 3_600_000;
const SPANS = [["", "at any time"], [HOUR, "in the last hour"], [24 * HOUR, "in the last day"], [7 * 24 * HOUR, "in the last week"]];

const LOG = [
  { title: "When", cell: (it) => when(it.at) },
  { title: "Actor", cell: (it) => it.actor },
  { title: "Action", cell: (it) => h("code", {}, it.action) },
  { title: "Object", cell: (it) => h("span", {}, it.object ?? "–", it.detail ? h("span", { class: "small" }, ` ${it.detail}`) : null) },
  { title: "Result", cell: (it) => h("span", { class: "states" }, state(it.outcome), it.status ? h("span", { class: "small" }, it.status) : null) },
  { title: "From", cell: (it) => it.source ?? "–" },
  { title: "Times", cell: (it) => it.count, number: true },
  { title: "Request", cell: (it) => (it.request_id ? short(it.request_id) : "–") },
];

/** Opens the audit log. */
export function audit(place, { signal }) {
  const count = { count: 1 };
  const filter = {};
  const field = (member, title, hint) => {
    const change = (event) => {
      filter[member] = event.target.value.trim();
      count.count = 1;
      refresh();
    };
    return h("label", {}, `${title} `, h("input", { type: "search", id: `audit-${member}`, onchange: change, placeholder: hint, autocomplete: "off" }));
  };
  const choose = (event) => {
    filter.outcome = event.target.value;
    count.count = 1;
    refresh();
  };
  const span = (event) => {
    filter.since = event.target.value ? new Date(Date.now() - Number(event.target.value)).toISOString() : "";
    count.count = 1;
    refresh();
  };
  const spans = SPANS.map(([value, text]) => h("option", { value }, text));
  const outcomes = ["", "ok", "refused", "failed"].map((it) => h("option", { value: it }, it || "any"));
  place.append(
    h(
      "div",
      { class: "filters" },
      field("actor", "Actor", "user:NAME"),
      field("action", "Action", "method and route"),
      field("object", "Object", "sandbox:ID"),
      h("label", {}, "Result ", h("select", { id: "audit-outcome", onchange: choose }, outcomes)),
      h("label", {}, "When ", h("select", { id: "audit-span", onchange: span }, spans)),
    ),
  );
  const load = (until) => pages("api/v1/audit", { ...filter, limit: 100 }, count.count, until);
  const render = ({ items, more: isMore }) => card("Audit log", table("Audit log", LOG, items, { key: (it) => it.id }), more(count, isMore, () => refresh()));
  const refresh = live(place, signal, load, render, { isSlow: () => true });
}
