// Sandbox specs, the hosts of sandboxes and the warm pool.

import { get, pages, part, patch, remove } from "./api.js";
import { act, confirm } from "./dialogs.js";
import { button, facts, h, card, section, table } from "./dom.js";
import { when } from "./format.js";
import { live } from "./live.js";

const variables = (it) => {
  const all = Object.entries(it.initial_env);
  if (all.length === 0) return "–";
  return h("details", { "data-at": `env ${it.id}` }, h("summary", {}, `${all.length} variables`), h("ul", { class: "plain" }, all.map(([name, value]) => h("li", {}, h("code", {}, `${name}=${value}`)))));
};

const COLUMNS = [
  { title: "Template", cell: (it) => h("code", {}, it.id) },
  { title: "Command", cell: (it) => (it.command ? h("code", {}, it.command.join(" ")) : "–") },
  { title: "Directory", cell: (it) => h("code", {}, it.working_dir) },
  { title: "Environment", cell: variables },
  { title: "Created", cell: (it) => when(it.created_at) },
];

function pool(warm) {
  const off = warm.target === 0 && warm.ready === 0 && warm.booting === 0;
  return section(
    "Warm pool",
    h("p", { class: "small" }, off ? "No sandboxes are kept warm: sandbox.warm is 0." : "Of the process that answered."),
    facts(
      ["Ready", `${warm.ready} of ${warm.target}`],
      ["Booting", warm.booting],
      ["Claimed", warm.claimed],
      ["Starts that claimed one", warm.hits],
      ["Starts that found none", warm.misses],
      ["Failed boots", warm.failed_boots],
      ["Deleted unused", warm.ended],
    ),
  );
}

async function setDraining(it, draining, refresh) {
  const text = draining ? "New sandboxes go to other hosts. Sandboxes on it keep running." : "It takes new sandboxes again.";
  if (await confirm(`${draining ? "Drain" : "Undrain"} ${it.id}?`, text, draining ? "Drain" : "Undrain", { kind: "primary" })) {
    await act(draining ? "The host is drained." : "The host takes new starts.", () => patch(`api/v1/admin/hosts/${part(it.id)}`, { draining }));
  }
  refresh();
}

async function removeHost(it, refresh) {
  const text = "Its sandboxes and their files are gone for the service. Conversations in them stay, and show MISSING.";
  if (await confirm(`Remove ${it.id}?`, text, "Remove")) await act("The host is removed.", () => remove(`api/v1/admin/hosts/${part(it.id)}`));
  refresh();
}

const hostColumns = (refresh) => [
  { title: "Host", cell: (it) => h("code", {}, it.id) },
  { title: "State", cell: (it) => it.status },
  { title: "Last seen", cell: (it) => (it.last_seen_at ? when(it.last_seen_at) : "never") },
  { title: "Sandboxes", cell: (it) => it.sandboxes },
  { title: "Open starts", cell: (it) => it.open_starts },
  {
    title: "Actions",
    cell: (it) => {
      if (it.status === "lost") return button("Remove…", () => removeHost(it, refresh), { kind: "danger", at: `remove ${it.id}`, label: `Remove ${it.id}` });
      const text = it.draining ? "Undrain" : "Drain";
      return button(`${text}…`, () => setDraining(it, !it.draining, refresh), { at: `drain ${it.id}`, label: `${text} ${it.id}` });
    },
  },
];

/** Opens the view. */
export function templates(place, { signal, access }) {
  const load = async (until) => {
    const isAdmin = access.role === "admin";
    const [specs, hosts, warm] = await Promise.all([
      pages("api/v1/sandbox-specs/search", { limit: 100 }, 5, until),
      isAdmin ? get("api/v1/admin/hosts", {}, until) : null,
      isAdmin ? get("api/v1/admin/warm", {}, until) : null,
    ]);
    return { specs: specs.items, hosts, warm };
  };
  const render = ({ specs, hosts, warm }) => [
    card("Templates", table("Templates", COLUMNS, specs, { empty: "No templates." })),
    hosts ? card("Hosts", table("Hosts", hostColumns(() => refresh()), hosts.items, { empty: "No hosts yet." })) : null,
    warm ? pool(warm) : null,
  ];
  const refresh = live(place, signal, load, render);
}
