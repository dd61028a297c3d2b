// Sandbox specs and the warm pool.

import { get, pages } from "./api.js";
import { facts, h, card, section, table } from "./dom.js";
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

/** Opens the view. */
export function templates(place, { signal, access }) {
  const load = async (until) => {
    const isAdmin = access.role === "admin";
    const [specs, warm] = await Promise.all([
      pages("api/v1/sandbox-specs/search", { limit: 100 }, 5, until),
      isAdmin ? get("api/v1/admin/warm", {}, until) : null,
    ]);
    return { specs: specs.items, warm };
  };
  const render = ({ specs, warm }) => [
    card("Templates", table("Templates", COLUMNS, specs, { empty: "No templates." })),
    warm ? pool(warm) : null,
  ];
  live(place, signal, load, render);
}
