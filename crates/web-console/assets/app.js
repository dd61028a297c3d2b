// Signing in and out, and the choice of the view. The view is in the fragment of the URL, so that it can be linked to; the key
// never is.

import { audit, users } from "./administration.js";
import { forget, get, keep, key } from "./api.js";
import { conversations } from "./conversations.js";
import { once } from "./dialogs.js";
import { button, failure, h } from "./dom.js";
import { keys } from "./keys.js";
import { overview } from "./overview.js";
import { sandboxes } from "./sandboxes.js";
import { templates } from "./templates.js";

const VIEWS = [
  { id: "overview", title: "Overview", open: overview },
  { id: "conversations", title: "Conversations", open: conversations },
  { id: "sandboxes", title: "Sandboxes", open: sandboxes },
  { id: "templates", title: "Templates", open: templates },
  { id: "keys", title: "Keys", open: keys },
  { id: "users", title: "Users", open: users, isForAdmins: true },
  { id: "audit", title: "Audit", open: audit, isForAdmins: true },
];

/** Characters that a header can contain. */
const SENDABLE = /^[\x21-\x7e]+$/;

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const who = document.getElementById("who");
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
  return { view: views().find((it) => it.id === id) ?? views()[0], rest: name };
}

function show() {
  if (!access) return;
  leave.abort();
  leave = new AbortController();
  const { view, rest } = address();
  for (const link of nav.querySelectorAll("a")) {
    const isHere = link.dataset.view === view.id;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
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
  view.open(place, { access, rest, signal: leave.signal, name });
}

function frame() {
  const link = (it) => h("li", {}, h("a", { href: `#/${it.id}`, "data-view": it.id }, it.title));
  nav.replaceChildren(h("ul", {}, views().map(link)));
  nav.hidden = false;
  const isOpen = access.key_id === null;
  const role = access.role === "admin" ? "administrator" : null;
  who.replaceChildren(
    h("span", { class: "name", id: "name" }, access.user_id),
    role ? h("span", { class: "small" }, role) : "",
    isOpen ? h("span", { class: "small" }, "open mode, no sign-in") : button("Sign out", () => signOut()),
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

function signOut() {
  forget();
  signIn();
}

/** Signs in with the stored key, or without one: in open mode, the service needs none. */
async function enter() {
  try {
    access = await get("api/v1/users/me/access");
  } catch (error) {
    const hadKey = Boolean(key());
    if (error.status === 401) forget();
    signIn(hadKey || error.status !== 401 ? error : null);
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
  // A key may be revoked while the page is open.
  if (!access) return;
  forget();
  signIn(event.detail);
});

enter();
