// Organizations: their name, members, roles and invitations. What the caller may do is in the permissions of `/me`.

import { ROOT, get, pages, part, patch, post, remove } from "./api.js";
import { act, ask, confirm, once, showOnce } from "./dialogs.js";
import { button, facts, h, labelled, section, table } from "./dom.js";
import { money, state, when } from "./format.js";
import { live } from "./live.js";

const PATH = "api/organizations";
const ROLES = ["member", "admin", "owner"];
/** Pages of a hundred members that are listed. */
const MAX_PAGES = 10;

/** The caller's organizations, and those of them that have other members. */
export async function memberships(signal) {
  const { items, current_org_id: current } = await get(PATH, {}, signal);
  return { items, current, shared: items.filter((it) => !it.is_personal) };
}

/** What `load` returns, or `otherwise` where the service does not have it, or the caller may not see it. */
async function ifThere(load, otherwise) {
  try {
    return await load();
  } catch (error) {
    if (error.status === 404 || error.status === 403 || error.status === 405) return otherwise;
    throw error;
  }
}

const nameOf = (it) => it.name || it.email || it.user_id;

function rename(found, refresh) {
  const name = h("input", { id: "organization-name", value: found.name, required: true, maxlength: 100 });
  const submit = async (event) => {
    event.preventDefault();
    await once("rename the organization", async () => {
      await act("The organization is renamed.", () => patch(`${PATH}/${part(found.id)}`, { name: name.value.trim() }));
      refresh();
    });
  };
  return h("form", { class: "form", onsubmit: submit }, labelled("Name", name), h("div", { class: "line" }, h("button", { type: "submit" }, "Rename")));
}

/** What all members together may spend on models in a month. */
function budget(found, refresh) {
  const store = (month_budget, done) =>
    once("set the budget", async () => {
      await act(done, () => patch(`${PATH}/${part(found.id)}`, { month_budget }));
      refresh();
    });
  const set = async () => {
    const text = await ask("Monthly budget", "What all members together may spend on models in a calendar month, in US dollars", found.month_budget ?? "", "Save", { type: "number", min: 0.01, step: "any" });
    if (text !== null) await store(Number(text), "The budget is set.");
  };
  return h(
    "div",
    { class: "line" },
    button("Monthly budget…", set, { at: "monthly budget" }),
    found.month_budget === null ? null : button("Remove the budget", () => store(null, "The budget is removed."), { at: "remove the budget" }),
  );
}

async function leave(organization) {
  if (!(await confirm(`Leave ${organization.name}?`, "You lose access at once. Another member has to invite you to come back.", "Leave"))) return;
  const done = await act("You left the organization.", () => remove(`${PATH}/${part(organization.id)}/members/${part(organization.me.user_id)}`).then(() => true));
  if (done) location.assign(new URL("settings", ROOT));
}

async function removeMember(organization, it, refresh) {
  const text = "They lose access at once, and their sandboxes of this organization are paused.";
  if (!(await confirm(`Remove ${nameOf(it)}?`, text, "Remove"))) return;
  await act("The member is removed.", () => remove(`${PATH}/${part(organization.id)}/members/${part(it.user_id)}`));
  refresh();
}

function members(organization, refresh) {
  const { me } = organization;
  const may = (permission) => me.permissions.includes(permission);
  const roles = ROLES.filter((role) => may(`change_user_role:${role}`));
  const change = async (it, role) => {
    await act("The role is changed.", () => patch(`${PATH}/${part(organization.id)}/members/${part(it.user_id)}`, { role }));
    refresh();
  };
  const role = (it) => {
    const isFixed = it.user_id === me.user_id || !roles.includes(it.role);
    if (isFixed) return state(it.role);
    const options = roles.map((name) => h("option", { value: name, selected: name === it.role }, name));
    return h("select", { "aria-label": `Role of ${nameOf(it)}`, "data-at": `role ${it.user_id}`, onchange: (event) => change(it, event.target.value) }, options);
  };
  const columns = [
    { title: "Member", cell: (it) => h("span", {}, nameOf(it), " ", it.user_id === me.user_id ? h("span", { class: "tag" }, "you") : null) },
    { title: "E-mail", cell: (it) => it.email || "–" },
    { title: "Role", cell: role },
    {
      title: "Actions",
      cell: (it) =>
        it.user_id !== me.user_id && roles.includes(it.role)
          ? button("Remove…", () => removeMember(organization, it, refresh), { kind: "danger", at: `remove ${it.user_id}`, label: `Remove ${nameOf(it)}` })
          : "–",
    },
  ];
  return section("Members", table("Members", columns, organization.members, { key: (it) => it.user_id, empty: "No members." }));
}

/** The link of an invitation, if the answer has it. */
function linkOf(answer) {
  const [made] = answer?.successful ?? [];
  return made?.invite_url ?? answer?.invite_url ?? null;
}

/** What the inviter does with the link. */
function deliveryText(answer) {
  switch (answer.successful?.[0]?.email_delivery) {
    case "sent":
      return "A mail with this link was sent. It cannot be shown again.";
    case "failed":
      return "The mail was not sent. Send this link to the person: it cannot be shown again.";
    case "pending":
      return "The mail server has not answered yet. To be sure, send this link to the person: it cannot be shown again.";
    default:
      return "Send this link to the person: it cannot be shown again.";
  }
}

function invitations(organization, refresh) {
  const base = `${PATH}/${part(organization.id)}/members/invite`;
  const email = h("input", { id: "invite-email", type: "email", autocomplete: "off" });
  const roles = ROLES.filter((role) => role !== "owner" || organization.me.permissions.includes("change_user_role:owner"));
  const role = h("select", { id: "invite-role" }, roles.map((name) => h("option", { value: name }, name)));
  const submit = async (event) => {
    event.preventDefault();
    await once("invite", async () => {
      const made = await act("The invitation is made.", async () => {
        const answer = await post(base, { emails: email.value.trim() ? [email.value.trim()] : [], role: role.value });
        const [refused] = answer.failed ?? [];
        if (refused) throw new Error(refused.error ?? refused.reason ?? "The invitation was refused.");
        return answer;
      });
      refresh();
      if (!made) return;
      email.value = "";
      const link = linkOf(made);
      if (link) await showOnce("The invitation", deliveryText(made), link);
    });
  };
  const withdraw = async (it) => {
    if (!(await confirm("Withdraw this invitation?", "Its link stops working.", "Withdraw"))) return;
    await act("The invitation is withdrawn.", () => remove(`${base}/${part(it.id)}`).then(() => true));
    refresh();
  };
  const columns = [
    { title: "E-mail", cell: (it) => it.email || "anyone with the link" },
    { title: "Role", cell: (it) => state(it.role) },
    { title: "Expires", cell: (it) => when(it.expires_at) },
    { title: "Actions", cell: (it) => button("Withdraw…", () => withdraw(it), { kind: "danger", at: `withdraw ${it.id}`, label: `Withdraw the invitation of ${it.email ?? it.id}` }) },
  ];
  return {
    form: section("Invite", h("form", { class: "form", onsubmit: submit }, labelled("E-mail", email, "Without one, anyone who has the link can join."), labelled("Role", role), h("div", { class: "line" }, h("button", { type: "submit", class: "primary" }, "Invite")))),
    pending: (items) => section("Pending invitations", table("Pending invitations", columns, items, { key: (it) => it.id, empty: "Nobody is invited." })),
  };
}

/** The form with which administrators of the instance create an organization. */
function creation() {
  const name = h("input", { id: "new-organization", required: true, maxlength: 100, autocomplete: "off" });
  const submit = async (event) => {
    event.preventDefault();
    await once("create an organization", async () => {
      const made = await act("The organization is created.", () => post(PATH, { name: name.value.trim() }));
      if (made) location.assign(new URL(`settings?org=${part(made.id)}#/organization`, ROOT));
    });
  };
  return section("New organization", h("form", { class: "form", onsubmit: submit }, labelled("Name", name, "You become its owner."), h("div", { class: "line" }, h("button", { type: "submit", class: "primary" }, "Create"))));
}

async function load(signal, isAdmin) {
  const { items, current, shared } = await memberships(signal);
  const asked = new URLSearchParams(location.search).get("org") ?? current;
  const found = items.find((it) => it.id === asked && !it.is_personal) ?? shared[0];
  if (!found) {
    // Where organizations are not built, the route of the personal one is missing, too.
    const canCreate = isAdmin && (await ifThere(() => get(`${PATH}/${part(current)}`, {}, signal), null)) !== null;
    return { found: null, canCreate, shared };
  }
  const base = `${PATH}/${part(found.id)}`;
  const me = await get(`${base}/me`, {}, signal);
  const people = await ifThere(() => pages(`${base}/members`, { limit: 100 }, MAX_PAGES, signal), null);
  const mayInvite = me.permissions.includes("invite_user_to_organization");
  const pending = mayInvite ? await ifThere(() => get(`${base}/members/invite`, {}, signal), null) : null;
  return { found: { ...found, me, members: people?.items ?? null }, pending: pending?.items ?? null, canCreate: isAdmin, shared };
}

/** Opens the section. */
export function organization(place, { signal, access }) {
  const isAdmin = access.role === "admin";
  // Forms stay while the lists are redrawn.
  const forms = h("div", { class: "stack" });
  const render = ({ found, pending, canCreate, shared }) => {
    const again = () => refresh();
    if (!forms.firstChild) {
      if (found && pending) forms.append(invitations(found, again).form);
      if (canCreate) forms.append(creation());
    }
    if (!found) return h("p", { class: "card" }, canCreate ? "You have your personal workspace only." : "You have your personal workspace only. It has no other members.");
    const { me } = found;
    const others = shared.filter((it) => it.id !== found.id);
    return [
      section(
        found.name,
        facts(["Your role", state(me.role)], ["Id", h("code", {}, found.id)], ["Budget per month", found.month_budget === null ? null : money(found.month_budget)]),
        me.permissions.includes("change_organization_name") ? rename(found, again) : null,
        me.permissions.includes("edit_org_settings") ? budget(found, again) : null,
        others.length ? h("p", { class: "small" }, "Other organizations: ", others.map((it, at) => [at ? ", " : "", h("a", { href: `${new URL("settings", ROOT).pathname}?org=${part(it.id)}#/organization` }, it.name)])) : null,
        h("div", { class: "line end" }, button("Leave…", () => leave(found), { kind: "danger", at: "leave" })),
      ),
      found.members ? members(found, again) : null,
      pending ? invitations(found, again).pending(pending) : null,
    ];
  };
  const refresh = live(place, signal, (until) => load(until, isAdmin), render, { isSlow: () => true });
  place.append(forms);
}
