// Sandboxes: their state and logs, and pausing, resuming or deleting them.

import { batch, pages, part, post, remove } from "./api.js";
import { act, confirm, once } from "./dialogs.js";
import { button, facts, h, card, section, table } from "./dom.js";
import { short, state, when } from "./format.js";
import { live, more } from "./live.js";
import { logs } from "./logs.js";

const SANDBOXES = "api/v1/sandboxes";
const STATES = ["RUNNING", "STARTING", "PAUSED", "ERROR"];

/** The members that are shown. The key must not be shown, so it is dropped. */
const shown = ({ id, status, status_detail, sandbox_spec_id, created_at, exposed_urls, egress_allow }) => ({
  id, status, status_detail, sandbox_spec_id, created_at, egress_allow, ports: (exposed_urls ?? []).map((it) => it.name),
});

async function pause(it, refresh) {
  const text = "What runs in it is interrupted and its memory is freed. Its files stay, and it can be resumed.";
  if (!(await confirm("Pause this sandbox?", text, "Pause", { kind: "primary" }))) return;
  await act("The sandbox is being paused.", () => post(`${SANDBOXES}/${part(it.id)}/pause`));
  refresh();
}

async function resume(it, refresh) {
  await once(`resume ${it.id}`, async () => {
    await act("The sandbox is being resumed.", () => post(`${SANDBOXES}/${part(it.id)}/resume`));
    await refresh();
  });
}

async function deleteSandbox(it, refresh) {
  const text = "It is deleted permanently, with all its files. Its conversations stay readable.";
  if (!(await confirm("Delete this sandbox?", text, "Delete"))) return;
  await act("The sandbox is being deleted.", () => remove(`${SANDBOXES}/${part(it.id)}`));
  refresh();
}

function actions(it, refresh) {
  const of = (text) => ({ at: `${text} ${it.id}`, label: `${text} ${it.id}` });
  return h(
    "div",
    { class: "line" },
    it.status === "RUNNING" || it.status === "STARTING" ? button("Pause…", () => pause(it, refresh), of("Pause")) : null,
    it.status === "PAUSED" || it.status === "ERROR" ? button("Resume", () => resume(it, refresh), of("Resume")) : null,
    it.status === "MISSING" ? null : button("Delete…", () => deleteSandbox(it, refresh), { kind: "danger", ...of("Delete") }),
  );
}

/** Opens the list, or one of them. */
export function sandboxes(place, context) {
  if (context.rest) return sandbox(place, context);
  const count = { count: 1 };
  let chosen = "";
  let wanted = "";
  const load = async (until) => {
    const found = await pages(`${SANDBOXES}/search`, { limit: 50 }, count.count, until, shown);
    const isWanted = (it) => (!chosen || it.status === chosen) && [it.id, it.sandbox_spec_id, it.status_detail ?? ""].some((text) => text.toLowerCase().includes(wanted));
    return { ...found, items: found.items.filter(isWanted) };
  };
  const status = h("select", { id: "sandbox-state", onchange: (event) => {
    chosen = event.target.value;
    refresh();
  } }, h("option", { value: "" }, "any state"), STATES.map((it) => h("option", { value: it }, it.toLowerCase())));
  const search = h("input", { type: "search", id: "sandbox-search", placeholder: "id, template or cause", autocomplete: "off", oninput: (event) => {
    wanted = event.target.value.trim().toLowerCase();
    refresh();
  } });
  place.append(h("div", { class: "filters" }, h("label", {}, "Search ", search), h("label", {}, "State ", status)));
  const columns = [
    { title: "Sandbox", cell: (it) => h("a", { href: `#/sandboxes/${part(it.id)}`, "data-at": `open ${it.id}` }, short(it.id)) },
    { title: "State", cell: (it) => state(it.status) },
    { title: "Cause", cell: (it) => it.status_detail ?? "–" },
    { title: "Template", cell: (it) => it.sandbox_spec_id },
    { title: "Created", cell: (it) => when(it.created_at) },
    { title: "Actions", cell: (it) => actions(it, () => refresh()) },
  ];
  const render = ({ items, more: isMore }) =>
    card("Sandboxes", table("Sandboxes", columns, items, { key: (it) => it.id, empty: "No sandboxes." }), more(count, isMore, () => refresh()));
  const refresh = live(place, context.signal, load, render, { isSlow: () => count.count > 2 });
}

function sandbox(place, context) {
  const { signal, rest } = context;
  const load = async (until) => {
    const [found, inside] = await Promise.all([
      batch(SANDBOXES, [rest], until),
      pages("api/v1/app-conversations/search", { sandbox_id__eq: rest, include_sub_conversations: true, limit: 50 }, 1, until),
    ]);
    const one = found.get(rest);
    return {
      found: one ? shown(one) : null,
      inside: inside.items.map(({ id, title, execution_status }) => ({ id, title, execution_status })),
    };
  };
  const columns = [
    { title: "Title", cell: (it) => h("a", { href: `#/conversations/${part(it.id)}`, "data-at": `open ${it.id}` }, it.title || "Untitled") },
    { title: "Agent", cell: (it) => state(it.execution_status) },
  ];
  // One log for the whole visit, below the content that is redrawn.
  const below = h("div");
  const render = ({ found, inside }) => {
    if (!found) return h("p", { class: "empty" }, "There is no such sandbox.");
    context.name(`Sandbox ${found.id}`);
    if (found.status !== "MISSING" && !below.firstChild) below.append(logs(found.id, signal));
    return [
      section(
        "Sandbox",
        facts(
          ["State", state(found.status)],
          ["Cause", found.status_detail],
          ["Template", found.sandbox_spec_id],
          ["Ports", found.ports.join(", ")],
          ["Hosts that it reaches", found.egress_allow ? found.egress_allow.join(", ") || "none" : null],
          ["Created", when(found.created_at)],
          ["Id", h("code", {}, found.id)],
        ),
        actions(found, () => refresh()),
      ),
      section("Conversations in it", table("Conversations in it", columns, inside, { empty: "None." })),
    ];
  };
  const refresh = live(place, signal, load, render);
  place.append(below);
}
