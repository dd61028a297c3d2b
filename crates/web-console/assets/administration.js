// For administrators: users and the audit log.

import { pages, part } from "./api.js";
import { h, card, table } from "./dom.js";
import { short, state, when } from "./format.js";
import { keysAt } from "./keys.js";
import { live, more } from "./live.js";
import { usageAt } from "./usage.js";

/** Opens the list of users, or the keys and usage of one. */
export function users(place, { signal, rest, name }) {
  if (rest) {
    name(`Keys of ${rest}`);
    keysAt(`api/v1/admin/users/${part(rest)}/keys`, `Keys of ${rest}`, place, signal);
    usageAt(`api/v1/admin/users/${part(rest)}/usage`, `Usage of ${rest}`, place, signal);
    return;
  }
  const count = { count: 1 };
  const columns = [
    { title: "User", cell: (it) => it.id },
    { title: "Role", cell: (it) => state(it.role) },
    { title: "Created", cell: (it) => when(it.created_at) },
    { title: "Deletion began", cell: (it) => when(it.deleted_at) },
    { title: "Keys", cell: (it) => h("a", { href: `#/users/${part(it.id)}`, "data-at": `keys ${it.id}`, "aria-label": `Keys of ${it.id}` }, "Keys") },
  ];
  const load = (until) => pages("api/v1/admin/users", { limit: 100 }, count.count, until);
  const render = ({ items, more: isMore }) => card("Users", table("Users", columns, items, { key: (it) => it.id }), more(count, isMore, () => refresh()));
  const refresh = live(place, signal, load, render, { isSlow: () => true });
}

const LOG = [
  { title: "When", cell: (it) => when(it.at) },
  { title: "Who", cell: (it) => it.actor },
  { title: "What", cell: (it) => h("code", {}, it.action) },
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
  const outcomes = ["", "ok", "refused", "failed"].map((it) => h("option", { value: it }, it || "any"));
  place.append(
    h(
      "div",
      { class: "filters" },
      field("actor", "Who", "user:NAME"),
      field("action", "What", "method and route"),
      field("object", "Object", "sandbox:ID"),
      h("label", {}, "Result ", h("select", { id: "audit-outcome", onchange: choose }, outcomes)),
    ),
  );
  const load = (until) => pages("api/v1/audit", { ...filter, limit: 100 }, count.count, until);
  const render = ({ items, more: isMore }) => card("Audit log", table("Audit log", LOG, items, { key: (it) => it.id }), more(count, isMore, () => refresh()));
  const refresh = live(place, signal, load, render, { isSlow: () => true });
}
