// The skills of this installation, and which of them the caller's agents use.

import { ownSettings, pages, post } from "./api.js";
import { act, once } from "./dialogs.js";
import { card, h, table } from "./dom.js";
import { live } from "./live.js";

/** Pages of a hundred skills that are listed. */
const MAX_PAGES = 10;
const SHOWN = { all: "All", on: "On", off: "Off" };

/** Opens the section. */
export function skills(place, { signal }) {
  let wanted = "";
  let shown = "all";
  const load = async (until) => {
    const [found, settings] = await Promise.all([
      pages("api/v1/skills/search", { limit: 100 }, MAX_PAGES, until),
      ownSettings(until),
    ]);
    const off = settings.disabled_skills ?? [];
    return { ...found, off, wanted, shown };
  };
  const flip = (name, isOn) =>
    once(`skill ${name}`, async () => {
      await act(`The skill ${name} is ${isOn ? "on" : "off"}.`, async () => {
        // Another page may have changed them since.
        const now = (await ownSettings()).disabled_skills ?? [];
        const rest = now.filter((it) => it !== name);
        return post("api/v1/settings", { disabled_skills: isOn ? rest : [...rest, name] });
      });
      await refresh();
    });
  const columns = (off) => [
    { title: "Skill", cell: (it) => it.name },
    {
      title: "On",
      cell: (it) =>
        h("input", {
          type: "checkbox", role: "switch", class: "switch", checked: !off.has(it.name), "data-at": `skill ${it.name}`, "aria-label": `Use the skill ${it.name}`,
          onchange: (event) => flip(it.name, event.target.checked),
        }),
    },
    { title: "Kind", cell: (it) => it.type },
    { title: "Source", cell: (it) => it.source },
    { title: "Triggers", cell: (it) => (it.triggers?.length ? it.triggers.join(", ") : "–") },
  ];
  const search = h("input", { type: "search", id: "skill-search", placeholder: "name or trigger", autocomplete: "off", oninput: (event) => {
    wanted = event.target.value.trim().toLowerCase();
    refresh();
  } });
  const which = h("select", { id: "skill-state", onchange: (event) => {
    shown = event.target.value;
    refresh();
  } }, Object.entries(SHOWN).map(([value, text]) => h("option", { value }, text)));
  place.append(
    h("p", { class: "small" }, "A skill is knowledge that agents get. A change holds for conversations that start from now on."),
    h("div", { class: "filters" }, h("label", {}, "Search ", search), h("label", {}, "Show ", which)),
  );
  const render = ({ items, off, more }) => {
    const disabled = new Set(off);
    const matches = (it) => [it.name, ...(it.triggers ?? [])].some((text) => text.toLowerCase().includes(wanted));
    const isShown = (it) => shown === "all" || (shown === "off") === disabled.has(it.name);
    const found = items.filter((it) => matches(it) && isShown(it));
    return card(
      "Skills",
      h("p", { class: "small", role: "status" }, `${found.length} of ${items.length}${more ? " (the first ones)" : ""}`),
      table("Skills", columns(disabled), found, { key: (it) => `${it.source} ${it.name}`, empty: "No skill matches." }),
    );
  };
  const refresh = live(place, signal, load, render, { isSlow: () => true });
}
