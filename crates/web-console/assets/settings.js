// The settings of the caller: a page with a menu, and a section for each view.

import { HAS_WEB_APP, PAGE, ROOT, SIGN_IN, get } from "./api.js";
import { account } from "./account.js";
import { gitProviders } from "./git.js";
import { h } from "./dom.js";
import { keysAt } from "./keys.js";
import { memberships, organization } from "./organization.js";
import { secrets } from "./secrets.js";
import { skills } from "./skills.js";

const keys = (place, { signal }) => {
  if (SIGN_IN === "open") {
    place.append(h("p", { class: "card" }, "This service is in open mode: every request acts as the local user, and no keys are needed."));
    return;
  }
  place.append(h("p", { class: "small" }, "Programs use a key instead of a password. Each key has all of your rights: give each program its own."));
  keysAt("api/v1/keys", "Your keys", place, signal);
};

const VIEWS = [
  { id: "account", title: "Account", open: account },
  { id: "keys", title: "API keys", open: keys },
  { id: "git", title: "Git providers", open: gitProviders },
  { id: "secrets", title: "Secrets", open: secrets },
  { id: "organization", title: "Organization", open: organization },
  { id: "skills", title: "Skills", open: skills },
];

/** Settings that are pages of the web application. */
const ELSEWHERE = [
  ["settings/llm", "Models"],
  ["settings/agents", "Agents"],
  ["mcp", "MCP servers"],
];

/** The address of a view; the chosen organization stays. */
function addressOf(id) {
  if (id === "skills") return `${new URL("settings/skills", ROOT).pathname}${location.search}`;
  const fragment = `#/${id}`;
  return PAGE === "skills" ? `${new URL("settings", ROOT).pathname}${location.search}${fragment}` : fragment;
}

/** Opens the page. */
export function settings(place, context) {
  const asked = PAGE === "skills" ? "skills" : context.rest;
  const view = VIEWS.find((it) => it.id === asked && (it.id !== "skills" || PAGE === "skills")) ?? VIEWS[0];
  context.heading.textContent = view.title;
  context.name(view.title);
  const link = (it) => {
    const current = it === view ? "page" : null;
    return h("li", { "data-section": it.id, hidden: it.id === "organization" && it !== view }, h("a", { href: addressOf(it.id), "aria-current": current }, it.title));
  };
  const other = ([path, title]) => h("li", {}, h("a", { href: new URL(path, ROOT).pathname }, title));
  const menu = h(
    "nav",
    { class: "side", "aria-label": "Settings" },
    h("ul", {}, VIEWS.map(link)),
    HAS_WEB_APP ? [h("h2", { class: "small" }, "In the web application"), h("ul", {}, ELSEWHERE.map(other))] : null,
  );
  const section = h("div", { class: "stack" });
  place.className = "with-side";
  place.append(menu, section);
  view.open(section, context);
  showOrganizations(menu, context);
}

/** Shows the link to organizations if the caller has some with other members, or may create one. */
async function showOrganizations(menu, { access, signal }) {
  try {
    const { shared } = await memberships(signal);
    if (shared.length > 0 || access.role === "admin") menu.querySelector("[data-section=organization]").hidden = false;
  } catch {
    // The section says why, if it is opened.
  }
}
