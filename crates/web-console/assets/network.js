// Hosts that the egress policy refused to the user's sandboxes, the user's decisions, and the list of new sandboxes.

import { get, ownSettings, pages, part, post, remove } from "./api.js";
import { act, ask, confirm, once } from "./dialogs.js";
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

/** The hosts to which the user limits new sandboxes; `null` for all that the service allows. */
function newSandboxes(hosts, refresh) {
  const store = (egress_allow, done) =>
    once("limit new sandboxes", async () => {
      await act(done, () => post("api/v1/settings", { egress_allow }));
      await refresh();
    });
  const limit = async () => {
    const label = "Hosts, separated by commas, e.g. packages, git, api.example.org";
    const text = await ask("Limit new sandboxes", label, (hosts ?? []).join(", "), "Save");
    if (text !== null) await store(text.split(/[\s,]+/).filter(Boolean), "Sandboxes that you start from now on reach these hosts only.");
  };
  const all = "They reach all hosts that the service allows.";
  return card(
    "New sandboxes",
    h("p", {}, hosts ? ["They reach only: ", h("code", {}, hosts.join(", ") || "nothing")] : all),
    h(
      "div",
      { class: "line" },
      button("Limit…", limit, { at: "limit new sandboxes" }),
      hosts ? button("Remove the limit", () => store(null, "The limit is removed."), { at: "remove the limit" }) : null,
    ),
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
    const [found, { egress_policy }, { egress_allow }] = await Promise.all([
      pages(`${REQUESTS}/search`, query, count.count, signal),
      get("server_info", {}, signal),
      ownSettings(signal),
    ]);
    return { ...found, policy: egress_policy, hosts: egress_allow };
  };
  const columns = [
    { title: "Host", cell: (it) => h("code", {}, named(it)) },
    { title: "Decision", cell: (it) => state(it.decision) },
    { title: "Asked by", cell: (it) => h("a", { href: `#/sandboxes/${part(it.sandbox_id)}`, "data-at": `open ${it.id}` }, short(it.sandbox_id)) },
    { title: "Asked", cell: (it) => when(it.created_at) },
    { title: "Actions", cell: (it) => actions(it, () => refresh()) },
  ];
  const render = ({ items, more: isMore, policy, hosts }) => [
    POLICIES[policy] ? h("p", {}, POLICIES[policy]) : newSandboxes(hosts, () => refresh()),
    card("Requests", table("Requests", columns, items, { key: (it) => it.id, empty: "No sandbox has asked for a host." }), more(count, isMore, () => refresh())),
  ];
  const refresh = live(place, context.signal, load, render);
}
