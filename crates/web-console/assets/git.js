// Git providers: their tokens, which the service keeps and never shows.

import { get, ownSettings, post, remove } from "./api.js";
import { act, confirm, once } from "./dialogs.js";
import { button, h, labelled, section, table } from "./dom.js";
import { live } from "./live.js";

const PROVIDERS = [
  ["github", "GitHub"],
  ["gitlab", "GitLab"],
  ["bitbucket", "Bitbucket"],
  ["bitbucket_data_center", "Bitbucket Data Center"],
  ["azure_devops", "Azure DevOps"],
  ["forgejo", "Forgejo"],
];
const nameOf = (id) => PROVIDERS.find(([known]) => known === id)?.[1] ?? id;
const PATH = "api/v1/secrets/git-providers";

async function removeAll(refresh) {
  const text = "Agents can no longer read or push your repositories. Tokens stay valid at the provider until you revoke them there.";
  if (!(await confirm("Remove all git tokens?", text, "Remove"))) return;
  await act("The git tokens are removed.", () => remove(PATH));
  refresh();
}

function form(hosts, refresh) {
  const provider = h("select", { id: "git-provider" }, PROVIDERS.map(([id, name]) => h("option", { value: id }, name)));
  const token = h("input", { id: "git-token", type: "password", autocomplete: "off", spellcheck: "false" });
  const host = h("input", { id: "git-host", type: "text", autocomplete: "off", spellcheck: "false" });
  const suggest = () => {
    host.placeholder = hosts[provider.value] ?? "git.example.org";
  };
  provider.addEventListener("change", suggest);
  suggest();
  const submit = async (event) => {
    event.preventDefault();
    await once("set a git token", async () => {
      const entry = {};
      if (token.value.trim()) entry.token = token.value.trim();
      if (host.value.trim()) entry.host = host.value.trim();
      const body = { provider_tokens: { [provider.value]: entry } };
      const done = await act(`The token of ${nameOf(provider.value)} is stored.`, () => post(PATH, body));
      refresh();
      if (!done) return;
      token.value = "";
      host.value = "";
    });
  };
  return section(
    "Add or change a token",
    h(
      "form",
      { class: "form", onsubmit: submit },
      labelled("Provider", provider),
      labelled("Access token", token, "It needs the right to read and write repositories. An empty field keeps the stored token."),
      labelled("Host", host, "Only for a server of your own. Another host needs the token again."),
      h("div", { class: "line" }, h("button", { type: "submit", class: "primary" }, "Save")),
    ),
  );
}

/** Opens the section. */
export function gitProviders(place, { signal }) {
  const columns = [
    { title: "Provider", cell: (it) => nameOf(it.id) },
    { title: "Host", cell: (it) => it.host ?? "default" },
    { title: "Token", cell: () => h("span", { class: "state good" }, "set") },
  ];
  let hosts = {};
  const load = async (until) => {
    const [settings, config] = await Promise.all([
      ownSettings(until),
      get("api/v1/web-client/config", {}, until),
    ]);
    const tokens = Object.entries(settings.provider_tokens_set ?? {}).map(([id, host]) => ({ id, host }));
    return { tokens, hosts: config.provider_default_hosts };
  };
  // The form stays while the list is redrawn.
  const below = h("div");
  const render = ({ tokens, hosts: found }) => {
    hosts = found;
    if (!below.firstChild) below.append(form(hosts, () => refresh()));
    return section(
      "Tokens",
      h("p", { class: "small" }, "Agents use them to clone and push. They are stored encrypted and never shown again."),
      table("Tokens", columns, tokens, { key: (it) => it.id, empty: "No provider has a token yet." }),
      tokens.length ? h("div", { class: "line end" }, button("Remove all…", () => removeAll(() => refresh()), { kind: "danger", at: "remove tokens" })) : null,
    );
  };
  const refresh = live(place, signal, load, render, { isSlow: () => true });
  place.append(below);
}
