// Builds elements. Text of the server only ever becomes a text node or the value of an attribute that cannot run code, never
// markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** An element: `h("a", {href: "#/x", onclick: act}, "text", more)`. */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Like `h`, for SVG elements. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/**
 * Replaces the content of an element, and restores the focus and open details (by `data-at`). What has the focus may be gone,
 * as a deleted row is: then the page has it, so that the keyboard continues here.
 */
export function put(place, ...children) {
  const hasFocus = place.contains(document.activeElement);
  const focused = hasFocus ? document.activeElement.closest("[data-at]")?.dataset.at : undefined;
  const unfolded = [...place.querySelectorAll("details[open][data-at]")].map((it) => it.dataset.at);
  place.replaceChildren(...children.flat(Infinity).filter((it) => it instanceof Node));
  for (const element of place.querySelectorAll("[data-at]")) {
    if (unfolded.includes(element.dataset.at)) element.open = true;
    // In a `details` element the summary has the focus.
    if (focused === element.dataset.at) (element.querySelector(":scope > summary") ?? element).focus({ preventScroll: true });
  }
  if (hasFocus && !place.contains(document.activeElement)) document.getElementById("main").focus({ preventScroll: true });
}

/** A table. `columns`: `{title, cell(row), number?}`; `key(row)` names a row. */
export function table(caption, columns, rows, { key = null, empty = "There is nothing here yet." } = {}) {
  if (rows.length === 0) return h("p", { class: "empty" }, empty);
  // On a narrow screen rows are laid out as cards; the roles keep it a table for screen readers.
  const head = columns.map((it) => h("th", { scope: "col", role: "columnheader", class: it.number ? "number" : null }, it.title));
  const body = rows.map((row) =>
    h(
      "tr",
      { role: "row", "data-row": key ? key(row) : null },
      columns.map((it, at) => {
        const first = at === 0 ? { scope: "row", role: "rowheader" } : { role: "cell" };
        return h(at === 0 ? "th" : "td", { ...first, class: it.number ? "number" : null, "data-title": it.title }, it.cell(row));
      }),
    ),
  );
  return h(
    "div",
    { class: "scroll cards", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      { role: "table" },
      h("caption", { class: "unseen" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
      h("tbody", { role: "rowgroup" }, body),
    ),
  );
}

/** Names and values, without absent values. */
export function facts(...pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, known.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** A part of a page under a heading. */
export function section(title, ...children) {
  return h("section", { class: "card", "aria-label": title }, h("h2", {}, title), children);
}

/** The only section of a page, whose heading is the page's. */
export function card(title, ...children) {
  return h("section", { class: "card", "aria-label": title }, children);
}

/** A choice of one of `all`, each with `id` and `name`. */
export function choice(label, id, all, chosen, choose) {
  const options = all.map((it) => h("option", { value: it.id, selected: it === chosen }, it.name));
  const onchange = (event) => choose(all.find((it) => it.id === event.target.value));
  return h("label", {}, `${label} `, h("select", { onchange, id }, options));
}

/** A button. */
export function button(text, onclick, { kind = "", at = null, label = null } = {}) {
  return h("button", { type: "button", class: kind, onclick, "data-at": at, "aria-label": label }, text);
}

/** A field under its label, with an optional hint. The field needs an id. */
export function labelled(text, field, hint = null) {
  const help = hint ? h("p", { class: "small", id: `${field.id}-help` }, hint) : null;
  if (help) field.setAttribute("aria-describedby", help.id);
  return h("div", { class: "field" }, h("label", { for: field.id }, text), field, help);
}

/** A text on one line of a form. */
export function row(...children) {
  return h("div", { class: "line end" }, children);
}

let hideTimer;

/** Shows a message, also to screen readers, and removes it after a while. */
export function say(text) {
  const place = document.getElementById("message");
  place.textContent = text;
  clearTimeout(hideTimer);
  hideTimer = setTimeout(() => (place.textContent = ""), 6000);
}

/** An error with the server's text. */
export function failure(error) {
  return h(
    "div",
    { class: "failure", role: "alert" },
    h("p", {}, error.message),
    error.request ? h("p", { class: "small" }, "Request ", h("code", {}, error.request)) : null,
  );
}
