// Hosts that the egress policy refused to the user's sandboxes, and the user's decisions.

import { get, pages, part, post, remove } from "./api.js";
import { act, confirm, once } from "./dialogs.js";
import { button, card, choice, h, table } from "./dom.js";
import { short, state, when } from "./format.js";
import { live, more } from "./live.js";

const REQUESTS = "api/v1/egress/requests";
const DECISIONS = [
  { id: "", name: "any" },
  { id: "pending", name: "pending" },
  { id: "approved_for_sandbox", name: "approved for one sandbox" },
  { id: "approved", name: "approved" },
  { id: "denied", name: "denied" },
];
const POLICIES = {
  open: "The egress policy is open: sandboxes reach all public hosts, and ask for none.",
  none: "The egress policy is none: sandboxes reach no host, and cannot ask for one.",
};

const named = (it) => `${it.host}:${it.port}`;

async function approve(it, for_all_sandboxes, refresh) {
  const text = "All of your sandboxes reach it, also later ones. An agent can send everything it knows there.";
  if (for_all_sandboxes && !(await confirm(`Approve ${named(it)} for all sandboxes?`, text, "Approve", { kind: "primary" }))) return;
  await once(`decide ${it.id}`, async () => {
    await act("Approved. The agent may try again.", () => post(`${REQUESTS}/${part(it.id)}/approve`, { for_all_sandboxes }));
    await refresh();
  });
}

async function change(it, done, what, refresh) {
  await once(`decide ${it.id}`, async () => {
    await act(done, what);
    await refresh();
  });
}

function actions(it, refresh) {
  const path = `${REQUESTS}/${part(it.id)}`;
  const of = (text, what) => button(text, what, { at: `${text} ${it.id}`, label: `${text} ${named(it)}` });
  const isApproved = it.decision === "approved";
  return h(
    "div",
    { class: "line" },
    it.decision === "pending" || it.decision === "denied" ? of("Approve for this sandbox", () => approve(it, false, refresh)) : null,
    isApproved ? null : of("Approve for all…", () => approve(it, true, refresh)),
    it.decision === "denied" ? null : of("Deny", () => change(it, "Denied.", () => post(`${path}/deny`), refresh)),
    it.decision === "pending" ? null : of("Forget", () => change(it, "Forgotten. The next attempt asks again.", () => remove(path), refresh)),
  );
}

/** Opens the list. */
export function network(place, context) {
  const count = { count: 1 };
  let chosen = DECISIONS[0];
  place.append(
    h("div", { class: "filters" }, choice("Decision", "decision", DECISIONS, chosen, (it) => {
      chosen = it;
      refresh();
    })),
  );
  const load = async (signal) => {
    const query = chosen.id ? { decision__eq: chosen.id } : {};
    const [found, { egress_policy }] = await Promise.all([pages(`${REQUESTS}/search`, query, count.count, signal), get("server_info", {}, signal)]);
    return { ...found, policy: egress_policy };
  };
  const columns = [
    { title: "Host", cell: (it) => h("code", {}, named(it)) },
    { title: "Decision", cell: (it) => state(it.decision) },
    { title: "Asked by", cell: (it) => h("a", { href: `#/sandboxes/${part(it.sandbox_id)}`, "data-at": `open ${it.id}` }, short(it.sandbox_id)) },
    { title: "Asked", cell: (it) => when(it.created_at) },
    { title: "Actions", cell: (it) => actions(it, () => refresh()) },
  ];
  const render = ({ items, more: isMore, policy }) => [
    POLICIES[policy] ? h("p", {}, POLICIES[policy]) : null,
    card("Requests", table("Requests", columns, items, { key: (it) => it.id, empty: "No sandbox has asked for a host." }), more(count, isMore, () => refresh())),
  ];
  const refresh = live(place, context.signal, load, render);
}
