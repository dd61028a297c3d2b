// The user's secrets: names, and the hosts to which the service sends values. Values are never shown.

import { pages, part, post, put, remove } from "./api.js";
import { act, confirm, once } from "./dialogs.js";
import { button, h, labelled, section, table } from "./dom.js";
import { live } from "./live.js";

const PATH = "api/v1/secrets";
const MAX_PAGES = 10;

async function forget(name, refresh) {
  const text = "New commands of agents no longer get it. It cannot be restored.";
  if (!(await confirm(`Delete the secret “${name}”?`, text, "Delete"))) return;
  await act("The secret is deleted.", () => remove(`${PATH}/${part(name)}`));
  refresh();
}

/** What agents have of a secret. */
function inSandboxes({ hosts }) {
  if (hosts?.length) return h("span", { class: "state good" }, "a placeholder");
  return h("span", { class: "state bad" }, "the value");
}

/** A form that stores a secret. `edit` fills it with a stored one. */
function form(refresh) {
  const name = h("input", { id: "secret-name", type: "text", required: true, maxlength: 255, autocomplete: "off", spellcheck: "false", placeholder: "API_TOKEN" });
  const value = h("input", { id: "secret-value", type: "password", autocomplete: "off", spellcheck: "false" });
  const hosts = h("input", { id: "secret-hosts", type: "text", autocomplete: "off", spellcheck: "false", placeholder: "api.example.org/repos/acme, *.example.net:8443" });
  const exposed = h("input", { id: "secret-exposed", type: "checkbox" });
  let edited = null;
  const listed = () => hosts.value.split(/[\s,]+/).filter(Boolean);
  // One of both is a choice: no secret is exposed by an empty field.
  const check = () => hosts.setCustomValidity(listed().length || exposed.checked ? "" : "Name hosts, or let agents read the value.");
  for (const field of [hosts, exposed]) field.addEventListener("input", check);
  const store = () => {
    const body = { name: name.value.trim(), hosts: listed(), exposed: listed().length === 0 };
    if (value.value) return post(PATH, { ...body, value: value.value });
    return put(`${PATH}/${part(body.name)}`, { ...body, description: edited?.name === body.name ? edited.description : null });
  };
  const submit = async (event) => {
    event.preventDefault();
    await once("set a secret", async () => {
      const done = await act(`The secret ${name.value.trim()} is stored.`, store);
      refresh();
      if (!done) return;
      edited = null;
      for (const field of [name, value, hosts]) field.value = "";
      exposed.checked = false;
      check();
    });
  };
  const edit = (secret) => {
    edited = secret;
    name.value = secret.name;
    value.value = "";
    hosts.value = (secret.hosts ?? []).join(", ");
    exposed.checked = secret.exposed;
    check();
    hosts.focus();
  };
  const view = section(
    "Add or change a secret",
    h(
      "form",
      { class: "form", onsubmit: submit },
      labelled("Name", name, "The name of the environment variable."),
      labelled("Value", value, "An empty field keeps the stored value."),
      labelled("Hosts", hosts, "With hosts, agents get a placeholder, and the service puts the value into headers of https requests to these hosts, or paths of them, only."),
      h("label", { class: "line" }, exposed, "Without hosts, agents can read the value"),
      h("div", { class: "line" }, h("button", { type: "submit", class: "primary" }, "Save")),
    ),
  );
  check();
  return { view, edit };
}

/** Opens the section. */
export function secrets(place, { signal }) {
  const { view, edit } = form(() => refresh());
  const actions = (it) =>
    h(
      "div",
      { class: "line" },
      button("Change…", () => edit(it), { at: `change ${it.name}`, label: `Change ${it.name}` }),
      button("Delete…", () => forget(it.name, () => refresh()), { kind: "danger", at: `delete ${it.name}`, label: `Delete ${it.name}` }),
    );
  const columns = [
    { title: "Name", cell: (it) => h("code", {}, it.name) },
    { title: "Purpose", cell: (it) => it.description || "–" },
    { title: "Hosts", cell: (it) => it.hosts?.join(", ") || "any" },
    { title: "In sandboxes", cell: inSandboxes },
    { title: "Actions", cell: actions },
  ];
  const load = (until) => pages(`${PATH}/search`, { limit: 100 }, MAX_PAGES, until);
  const render = (found) =>
    section(
      "Your secrets",
      h("p", { class: "small" }, "They are stored encrypted and never shown again. Confined sandboxes and containers get placeholders; in other sandboxes agents have each value."),
      table("Your secrets", columns, found.items, { key: (it) => it.name, empty: "No secrets." }),
    );
  const refresh = live(place, signal, load, render, { isSlow: () => true });
  place.append(view);
}
