// What model calls cost, by day, model, conversation or user.

import { get, ownSettings, post } from "./api.js";
import { stacked } from "./charts.js";
import { act, ask, once } from "./dialogs.js";
import { button, choice, h, section, table } from "./dom.js";
import { money, short } from "./format.js";
import { live } from "./live.js";

const DAY = 86_400_000;
const BATCH = 100;
const SPANS = [
  { id: "7", name: "7 days" },
  { id: "30", name: "30 days" },
  { id: "365", name: "365 days" },
];
const GROUPS = [
  { id: "day", name: "day" },
  { id: "model", name: "model" },
  { id: "conversation", name: "conversation" },
];
const USER = { id: "user", name: "user" };
const OWN = { id: "own", name: "yours", path: "api/v1/usage/models" };
const EVERYBODY = { id: "all", name: "those of everybody", path: "api/v1/admin/usage/models" };
const COST = [{ name: "Cost", className: "step1" }];
const NUMBER = new Intl.NumberFormat("en-GB");
const number = (count) => NUMBER.format(count);

/** Titles of the caller's conversations, by id. Deleted ones have none. */
async function titles(items, signal) {
  const ids = items.map((it) => it.name).filter(Boolean);
  const found = {};
  for (let at = 0; at < ids.length; at += BATCH) {
    const answer = await get("api/v1/app-conversations", { ids: ids.slice(at, at + BATCH) }, signal);
    for (const one of answer) if (one) found[one.id] = one.title || "Untitled";
  }
  return found;
}

/** The name of a group; a conversation of the caller is a link. */
function title(it, group, whose, known) {
  if (group.id !== "conversation") return it.name;
  if (!it.name) return "profiles of sandboxes";
  if (whose !== OWN) return h("code", {}, it.name);
  if (!known[it.name]) return ["deleted ", short(it.name)];
  return h("a", { href: `#/conversations/${it.name}`, "data-at": `open ${it.name}` }, known[it.name]);
}

const columns = (group, whose, known) => [
  { title: group.name[0].toUpperCase() + group.name.slice(1), cell: (it) => title(it, group, whose, known) },
  { title: "Calls", cell: (it) => number(it.calls), number: true },
  { title: "Input", cell: (it) => number(it.input_tokens + it.cached_input_tokens + it.cache_write_tokens), number: true },
  { title: "Cached input", cell: (it) => number(it.cached_input_tokens), number: true },
  { title: "Output", cell: (it) => number(it.output_tokens), number: true },
  { title: "Cost", cell: (it) => money(it.cost), number: true },
];

/** What the figures do not say by themselves. */
function notes(items) {
  const sum = (name) => items.reduce((all, it) => all + it[name], 0);
  const [estimated, unpriced] = [sum("estimated_calls"), sum("unpriced_calls")];
  return [
    estimated ? h("p", { class: "small" }, `The tokens of ${number(estimated)} calls are estimated, because the provider did not report them.`) : null,
    unpriced ? h("p", { class: "small" }, `${number(unpriced)} calls have no cost, because the price of their model is unknown.`) : null,
  ];
}

const ofBudget = (cost, budget) => (budget === null ? money(cost) : `${cost ? money(cost) : "nothing"} of ${money(budget)}`);

function month({ month_cost: cost, month_budget: budget, organization }, whose) {
  const spent = h("p", {}, "This month: ", h("strong", {}, ofBudget(cost, whose === OWN ? budget : null)));
  if (organization) spent.append(`, all members of the organization: ${ofBudget(organization.month_cost, organization.month_budget)}`);
  return spent;
}

/** The user's own budget for a month; `null` for none. */
function ownBudget(budget, refresh) {
  const store = (max_budget_per_month, done) =>
    once("set the monthly budget", async () => {
      await act(done, () => post("api/v1/settings", { max_budget_per_month }));
      await refresh();
    });
  const set = async () => {
    const text = await ask("Monthly budget", "What you may spend on models in a calendar month, in US dollars", budget ?? "", "Save", { type: "number", min: 0.01, step: "any" });
    if (text !== null) await store(Number(text), "Your monthly budget is set.");
  };
  return h(
    "div",
    { class: "line" },
    button("Monthly budget…", set, { at: "monthly budget" }),
    budget ? button("Remove the budget", () => store(null, "The budget is removed."), { at: "remove the budget" }) : null,
  );
}

/** Opens the view. */
export function costs(place, { access, signal }) {
  const isAdmin = access.role === "admin";
  let [span, group, whose] = [SPANS[1], GROUPS[0], OWN];
  const filters = h("div", { class: "filters" });
  const show = () => {
    const groups = whose === OWN ? GROUPS : [...GROUPS, USER];
    if (!groups.includes(group)) [group] = groups;
    const set = (change) => (it) => {
      change(it);
      show();
      refresh();
    };
    filters.replaceChildren(
      choice("The last", "span", SPANS, span, set((it) => { span = it; })),
      choice("By", "group", groups, group, set((it) => { group = it; })),
      ...(isAdmin ? [choice("Calls:", "whose", [OWN, EVERYBODY], whose, set((it) => { whose = it; }))] : []),
    );
  };
  const load = async (until) => {
    const since = new Date(Date.now() - (Number(span.id) - 1) * DAY).toISOString();
    const found = await get(whose.path, { since, group_by: group.id }, until);
    const known = group.id === "conversation" && whose === OWN ? await titles(found.items, until) : {};
    const { max_budget_per_month: own } = whose === OWN ? await ownSettings(until) : {};
    return { ...found, own, known, span: span.id, group: group.id, whose: whose.id };
  };
  const chart = (items) => {
    const days = items.map((it) => ({ label: it.name.slice(5), values: [it.cost] }));
    return days.length > 1 ? stacked("Cost per day", COST, days, money) : null;
  };
  const render = (found) =>
    section(
      "Model calls",
      month(found, whose),
      found.own === undefined ? null : ownBudget(found.own, () => refresh()),
      found.items.length
        ? [group.id === "day" ? chart(found.items) : null, table("Model calls", columns(group, whose, found.known), found.items), ...notes(found.items)]
        : h("p", { class: "empty" }, "No model was called through the service in this time."),
    );
  show();
  place.append(filters);
  const refresh = live(place, signal, load, render, { isSlow: () => true });
}
