// The caller's account: name, role, password and sessions.

import { SIGN_IN, get, ownSettings, part, post, remove } from "./api.js";
import { act, confirm, once } from "./dialogs.js";
import { button, facts, h, labelled, section, table } from "./dom.js";
import { state, when } from "./format.js";
import { live } from "./live.js";
import { usageAt } from "./usage.js";

const MIN_PASSWORD_CHARS = 12;
const MAX_PASSWORD_CHARS = 200;

/** A browser and its system, from the text by which it describes itself. */
function browser(agent) {
  if (!agent) return "Unknown browser";
  const pick = (names) => names.find(([text]) => agent.includes(text))?.[1];
  const name = pick([["Edg", "Edge"], ["OPR/", "Opera"], ["Firefox/", "Firefox"], ["Chrom", "Chrome"], ["Safari/", "Safari"], ["curl/", "curl"]]);
  const system = pick([["Android", "Android"], ["iPhone", "iPhone"], ["iPad", "iPad"], ["Windows", "Windows"], ["Mac OS", "macOS"], ["Linux", "Linux"]]);
  const text = [name ?? "Unknown browser", system ? ` on ${system}` : ""].join("");
  return h("span", { title: agent }, text);
}

async function end(it, refresh) {
  const text = it.is_current ? "You are signed out of this browser." : "That browser has to sign in again.";
  if (!(await confirm("End this session?", text, "End session"))) return;
  await act("The session has ended.", () => remove(`api/v1/sessions/${part(it.id)}`));
  refresh();
}

async function endOthers(items, refresh) {
  const others = items.filter((it) => !it.is_current);
  if (!(await confirm("End all other sessions?", `${others.length === 1 ? "One browser has" : `${others.length} browsers have`} to sign in again. This one stays signed in.`, "End sessions"))) return;
  await act("All other sessions have ended.", async () => {
    for (const it of others) await remove(`api/v1/sessions/${part(it.id)}`);
    return true;
  });
  refresh();
}

function sessions(place, signal) {
  const columns = [
    { title: "Browser", cell: (it) => h("span", {}, browser(it.user_agent), " ", it.is_current ? h("span", { class: "tag" }, "this one") : null) },
    { title: "Address", cell: (it) => it.address ?? "–" },
    { title: "Signed in", cell: (it) => when(it.created_at) },
    { title: "Last used", cell: (it) => when(it.last_seen_at) },
    { title: "Ends", cell: (it) => when(it.expires_at) },
    { title: "Actions", cell: (it) => button("End…", () => end(it, () => refresh()), { kind: "danger", at: `end ${it.id}`, label: "End this session" }) },
  ];
  const render = ({ items }) => {
    const newest = [...items].sort((a, b) => Number(b.is_current) - Number(a.is_current) || b.last_seen_at.localeCompare(a.last_seen_at));
    return section(
      "Sessions",
      h("p", { class: "small" }, "Browsers in which you are signed in."),
      table("Sessions", columns, newest, { key: (it) => it.id, empty: "You are signed in nowhere." }),
      items.some((it) => !it.is_current)
        ? h("div", { class: "line end" }, button("End all other sessions…", () => endOthers(items, () => refresh()), { kind: "danger", at: "end others" }))
        : null,
    );
  };
  const refresh = live(place, signal, (until) => get("api/v1/sessions", {}, until), render, { isSlow: () => true });
  return () => refresh();
}

/** The form for a new password. `changed()` runs after the change. */
function password(user, changed) {
  const field = (id, autocomplete, more = {}) => h("input", { id, type: "password", required: true, maxlength: MAX_PASSWORD_CHARS, autocomplete, ...more });
  const present = field("current-password", "current-password");
  const next = field("new-password", "new-password", { minlength: MIN_PASSWORD_CHARS });
  const again = field("repeat-password", "new-password", { minlength: MIN_PASSWORD_CHARS });
  const compare = () => again.setCustomValidity(next.value === again.value ? "" : "The two passwords differ.");
  for (const one of [next, again]) one.addEventListener("input", compare);
  const submit = async (event) => {
    event.preventDefault();
    await once("change the password", async () => {
      const body = { current_password: present.value, new_password: next.value };
      const done = await act("The password is changed. Your other sessions have ended.", () => post("api/v1/users/me/password", body));
      if (!done) return;
      for (const one of [present, next, again]) one.value = "";
      changed();
    });
  };
  return section(
    "Password",
    h(
      "form",
      { class: "form", onsubmit: submit },
      // Password managers need the name.
      h("input", { type: "text", class: "unseen", autocomplete: "username", value: user, readonly: true, tabindex: "-1", "aria-hidden": "true" }),
      labelled("Current password", present),
      labelled("New password", next, `${MIN_PASSWORD_CHARS} to ${MAX_PASSWORD_CHARS} characters.`),
      labelled("Repeat the new password", again),
      h("div", { class: "line" }, h("button", { type: "submit", class: "primary" }, "Change the password"), h("span", { class: "small" }, "Your other sessions end.")),
    ),
  );
}

/** Opens the section. */
export function account(place, { access, signal }) {
  const role = access.role === "admin" ? "Administrator" : "User";
  const profile = h("div");
  const shown = (email) => section("Profile", facts(["Name", access.user_id], ["Role", state(role === "User" ? "user" : "admin")], ["E-mail for commits", email]));
  profile.append(shown(null));
  place.append(profile);
  ownSettings(signal).then(
    (found) => profile.replaceChildren(shown(found.git_user_email || found.email)),
    // The e-mail address is an extra.
    () => {},
  );
  if (SIGN_IN === "session") {
    const before = h("div");
    place.append(before);
    const refresh = sessions(place, signal);
    before.append(password(access.user_id, refresh));
  }
  usageAt("api/v1/usage", "Usage", place, signal);
}
