// Signing in and out, and the choice of the view. The view is in the fragment of the URL, so that it can be linked to; a key
// never is. The settings pages are documents of their own, whose views are in `settings.js`.

import { audit, users } from "./administration.js";
import { HAS_WEB_APP, PAGE, ROOT, SIGN_IN, forget, get, goToLogin, keep, key, post } from "./api.js";
import { automations } from "./automations.js";
import { conversations } from "./conversations.js";
import { costs } from "./costs.js";
import { act, once } from "./dialogs.js";
import { button, failure, h } from "./dom.js";
import { network } from "./network.js";
import { overview } from "./overview.js";
import { sandboxes } from "./sandboxes.js";
import { settings } from "./settings.js";
import { templates } from "./templates.js";

const VIEWS = [
  { id: "overview", title: "Overview", open: overview },
  { id: "conversations", title: "Conversations", open: conversations },
  { id: "automations", title: "Automations", open: automations },
  { id: "sandboxes", title: "Sandboxes", open: sandboxes },
  { id: "network", title: "Network", open: network },
  { id: "templates", title: "Templates", open: templates },
  { id: "costs", title: "Costs", open: costs },
  { id: "users", title: "Users", open: users, isForAdmins: true },
  { id: "audit", title: "Audit", open: audit, isForAdmins: true },
];
const SETTINGS = { id: "settings", title: "Settings", open: settings };

/** Characters that a header can contain. */
const SENDABLE = /^[\x21-\x7e]+$/;

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const who = document.getElementById("who");
const isConsole = PAGE === "console";
let access = null;
let leave = new AbortController();

const views = () => VIEWS.filter((it) => !it.isForAdmins || access.role === "admin");

function address() {
  const [, id = "", ...rest] = location.hash.split("/");
  let name = rest.join("/");
  try {
    name = decodeURIComponent(name);
  } catch {
    // An invalid escape cannot name anything.
  }
  if (!isConsole) return { view: SETTINGS, rest: id };
  return { view: views().find((it) => it.id === id) ?? views()[0], rest: name };
}

function show() {
  if (!access) return;
  leave.abort();
  leave = new AbortController();
  const { view, rest } = address();
  for (const link of nav.querySelectorAll("a")) {
    const isHere = link.dataset.view === view.id;
    if (isHere) {
      link.setAttribute("aria-current", "page");
      // The menu scrolls on narrow screens.
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  const heading = h("h1", { tabindex: "-1" }, view.title);
  const name = (text) => {
    document.title = `${text} · Agent workspace`;
  };
  name(view.title);
  const place = h("div", { class: "stack" });
  main.replaceChildren(heading, place);
  heading.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  view.open(place, { access, rest, signal: leave.signal, name, heading });
}

function frame() {
  const console = isConsole ? "" : new URL("console/", ROOT).pathname;
  const link = (it) => h("li", {}, h("a", { href: `${console}#/${it.id}`, "data-view": it.id }, it.title));
  const own = h("a", { href: isConsole ? new URL("settings", ROOT).pathname : "#/account", "data-view": "settings" }, "Settings");
  nav.replaceChildren(h("ul", {}, views().map(link), h("li", {}, own)));
  nav.hidden = false;
  const role = access.role === "admin" ? "administrator" : null;
  who.replaceChildren(
    HAS_WEB_APP ? h("a", { href: ROOT.pathname }, "Web application") : "",
    h("span", { class: "name", id: "name" }, access.user_id),
    role ? h("span", { class: "small" }, role) : "",
    SIGN_IN === "open" ? h("span", { class: "small" }, "open mode, no sign-in") : button("Sign out", () => signOut()),
  );
  who.hidden = false;
}

function signIn(problem = null) {
  leave.abort();
  access = null;
  for (const part of [nav, who]) {
    part.replaceChildren();
    part.hidden = true;
  }
  document.title = "Sign in · Agent workspace";
  const field = h("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "key-help" });
  const submit = async (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (!SENDABLE.test(text)) {
      signIn(new Error("This is not a valid key: it contains a character that keys never contain. Copy it again."));
      return;
    }
    await once("sign in", async () => {
      keep(text);
      await enter();
    });
  };
  main.replaceChildren(
    h(
      "form",
      { class: "card sign-in", onsubmit: submit },
      h("h1", {}, "Sign in"),
      problem ? failure(problem) : null,
      h("label", { for: "key" }, "API key"),
      field,
      h("p", { class: "small", id: "key-help" }, "The key is kept in this tab only and is removed when you sign out or close the tab. The first key of a service is in the file bootstrap.key of its data directory."),
      h("button", { type: "submit", class: "primary" }, "Sign in"),
    ),
  );
  field.focus();
}

async function signOut() {
  if (SIGN_IN === "session") {
    await once("sign out", async () => {
      const done = await act("You are signed out.", async () => {
        await post("api/logout");
        return true;
      });
      if (done) location.assign(new URL("login", ROOT));
    });
    return;
  }
  forget();
  signIn();
}

/** Shows why the page cannot be used, and a way to try again. */
function unavailable(error) {
  main.replaceChildren(h("div", { class: "stack" }, failure(error), h("p", {}, button("Try again", () => enter(), { kind: "primary" }))));
}

/** Signs in with the session, with the stored key, or without one: in open mode, the service needs none. */
async function enter() {
  try {
    access = await get("api/v1/users/me/access");
  } catch (error) {
    const isRefused = error.status === 401;
    if (SIGN_IN === "session") {
      if (isRefused) goToLogin();
      else unavailable(error);
      return;
    }
    const hadKey = Boolean(key());
    if (isRefused) forget();
    signIn(hadKey || !isRefused ? error : null);
    return;
  }
  frame();
  show();
  await isolation();
}

/** Says in every view that sandboxes are not isolated. */
async function isolation() {
  const note = document.getElementById("isolation");
  try {
    note.hidden = (await get("server_info")).sandbox_isolation !== "none";
  } catch {
    // A service that does not say it; the next sign-in asks again.
    note.hidden = true;
  }
}

window.addEventListener("hashchange", show);
window.addEventListener("signed-out", (event) => {
  // A key may be revoked, and a session may end, while the page is open.
  if (!access) return;
  if (SIGN_IN === "session") {
    goToLogin();
    return;
  }
  forget();
  signIn(event.detail);
});

if (SIGN_IN !== "key") forget();
enter();
