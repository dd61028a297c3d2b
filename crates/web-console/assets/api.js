// The service's public API, called with the user's session or key. A key is only in this tab's session storage and in a header,
// never in a URL. With sessions, nothing is stored: the browser adds a cookie that no script can read.

/** The address of the service, whatever path a proxy adds. This file is in the folder below. */
export const ROOT = new URL("../", import.meta.url);
/** Which page this is, and how people sign in: `session`, `key` or `open`. */
export const { page: PAGE, signIn: SIGN_IN } = document.documentElement.dataset;
/** The organization that the web application links to: settings are those of the caller in it. */
const UUID = /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;
const NAMED = new URLSearchParams(location.search).get("org");
const ORGANIZATION = PAGE !== "console" && UUID.test(NAMED) ? NAMED : null;
export const HAS_WEB_APP = document.documentElement.dataset.webApp === "yes";

const STORAGE_KEY = "agent-workspace.key";
const REQUEST_TIMEOUT_MS = 30_000;

/** A refusal of the server, with its text. */
export class Refused extends Error {
  constructor(status, message, request) {
    super(message);
    this.status = status;
    this.request = request;
  }
}

export const key = () => (SIGN_IN === "key" ? sessionStorage.getItem(STORAGE_KEY) : null);
export const keep = (text) => sessionStorage.setItem(STORAGE_KEY, text);
export const forget = () => sessionStorage.removeItem(STORAGE_KEY);

function words(detail) {
  if (typeof detail === "string") return detail;
  if (!Array.isArray(detail)) return null;
  return detail.map((it) => `${(it.loc ?? []).slice(1).join(".")}: ${it.msg}`).join("; ");
}

async function refusal(answer) {
  let text = null;
  try {
    text = words(JSON.parse(await answer.text()).detail);
  } catch {
    // Not the service's own error: a proxy's page.
  }
  return new Refused(answer.status, `${text || answer.statusText || "Refused"} (${answer.status})`, answer.headers.get("x-request-id"));
}

/** The error for a request without a response; an abort by the view itself stays as it is. */
function unanswered(error) {
  if (error.name === "AbortError") return error;
  if (error.name === "TimeoutError") return new Refused(0, "The service did not answer in time.", null);
  if (error.name === "SyntaxError") return new Refused(0, "The response does not come from the service.", null);
  return new Refused(0, "The service cannot be reached.", null);
}

/** Sends the visitor to the login page, which returns to this view. */
export function goToLogin() {
  const here = `${location.pathname}${location.search}${location.hash}`;
  location.assign(new URL(`login?returnTo=${encodeURIComponent(here)}`, ROOT));
}

async function send(method, path, { query = {}, body, signal, organization = ORGANIZATION } = {}) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "") continue;
    for (const one of [value].flat()) url.searchParams.append(name, one);
  }
  const headers = {};
  if (key()) headers["X-Session-API-Key"] = key();
  // In these paths the organization is named already.
  if (organization && !path.startsWith("api/organizations")) headers["X-Org-Id"] = organization;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const text = body === undefined ? undefined : JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(url, { method, headers, body: text, signal, credentials: "same-origin", cache: "no-store" });
  } catch (error) {
    throw unanswered(error);
  }
  if (answer.ok) return answer;
  const refused = await refusal(answer);
  if (answer.status === 401) window.dispatchEvent(new CustomEvent("signed-out", { detail: refused }));
  throw refused;
}

async function ask(method, path, { signal, ...rest } = {}) {
  const deadline = AbortSignal.timeout(REQUEST_TIMEOUT_MS);
  const answer = await send(method, path, { ...rest, signal: signal ? AbortSignal.any([signal, deadline]) : deadline });
  if (answer.status === 204) return null;
  try {
    return await answer.json();
  } catch (error) {
    throw unanswered(error);
  }
}

export const get = (path, query, signal) => ask("GET", path, { query, signal });
/** The caller's settings; the defaults if none are stored, which the service answers to those who name an organization. */
export async function ownSettings(signal) {
  const organization = ORGANIZATION ?? (await get("api/organizations", {}, signal)).current_org_id;
  return ask("GET", "api/v1/settings", { signal, organization });
}

export const post = (path, body) => ask("POST", path, { body });
export const put = (path, body) => ask("PUT", path, { body });
export const patch = (path, body) => ask("PATCH", path, { body });
export const remove = (path) => ask("DELETE", path);

/** Loads up to `count` pages of a list. Returns the items, converted by `keep`, and whether there are more. */
export async function pages(path, query, count, signal, keep = (it) => it) {
  const items = [];
  let page_id;
  for (let page = 0; page < count; page += 1) {
    const answer = await get(path, { ...query, page_id }, signal);
    items.push(...answer.items.map(keep));
    page_id = answer.next_page_id;
    if (!page_id) break;
  }
  return { items, more: Boolean(page_id) };
}

/** Loads objects by id, as a map. */
export async function batch(path, ids, signal) {
  const found = new Map();
  for (let at = 0; at < ids.length; at += 100) {
    const answer = await get(path, { id: ids.slice(at, at + 100) }, signal);
    for (const one of answer) if (one) found.set(one.id, one);
  }
  return found;
}

/** Streams text until its end. */
export async function stream(path, query, hear, signal) {
  const answer = await send("GET", path, { query, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    hear(value);
  }
}

/** Loads a file and saves it under this name. */
export async function save(path, query, name) {
  const answer = await send("GET", path, { query });
  const url = URL.createObjectURL(await answer.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser still reads it.
  setTimeout(() => URL.revokeObjectURL(url), REQUEST_TIMEOUT_MS);
}

/** Escapes a segment of a path. */
export const part = encodeURIComponent;
