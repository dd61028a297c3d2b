// The service's public API, with the key of whoever sits here. The key is in this tab's session storage and in a header,
// and nowhere else: never in an address.

const BASE = new URL("../", document.baseURI);
const PLACE = "agent-workspace.key";
const DEADLINE = 30_000;

/** What the server refused, in its words. */
export class Refused extends Error {
  constructor(status, message, request) {
    super(message);
    this.status = status;
    this.request = request;
  }
}

export const key = () => sessionStorage.getItem(PLACE);
export const keep = (text) => sessionStorage.setItem(PLACE, text);
export const forget = () => sessionStorage.removeItem(PLACE);

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
    // Not the service's own words: a proxy's page.
  }
  return new Refused(answer.status, `${text || answer.statusText || "Refused"} (${answer.status})`, answer.headers.get("x-request-id"));
}

/** Why there is no answer; what the view itself ended stays as it is. */
function unanswered(error) {
  if (error.name === "AbortError") return error;
  if (error.name === "TimeoutError") return new Refused(0, "The service did not answer in time.", null);
  if (error.name === "SyntaxError") return new Refused(0, "What answered is not the service.", null);
  return new Refused(0, "The service cannot be reached.", null);
}

async function send(method, path, { query = {}, body, signal } = {}) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "") continue;
    for (const one of [value].flat()) url.searchParams.append(name, one);
  }
  const headers = {};
  if (key()) headers["X-Session-API-Key"] = key();
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
  const deadline = AbortSignal.timeout(DEADLINE);
  const answer = await send(method, path, { ...rest, signal: signal ? AbortSignal.any([signal, deadline]) : deadline });
  try {
    return await answer.json();
  } catch (error) {
    throw unanswered(error);
  }
}

export const get = (path, query, signal) => ask("GET", path, { query, signal });
export const post = (path, body) => ask("POST", path, { body });
export const remove = (path) => ask("DELETE", path);

/** Up to so many pages of a list, what `keep` makes of each item, and whether there is more. */
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

/** Objects by their ids, as a map. */
export async function batch(path, ids, signal) {
  const found = new Map();
  for (let at = 0; at < ids.length; at += 100) {
    const answer = await get(path, { id: ids.slice(at, at + 100) }, signal);
    for (const one of answer) if (one) found.set(one.id, one);
  }
  return found;
}

/** Text as it comes, until it ends. */
export async function stream(path, query, hear, signal) {
  const answer = await send("GET", path, { query, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    hear(value);
  }
}

/** A part of a path. */
export const part = encodeURIComponent;
