// Shows the markdown of messages: paragraphs, headings, lists, quotes, code and emphasis. Everything else is text. It creates
// elements only, and no links, images or markup.

import { h } from "./dom.js";

/** Longer texts are shown as they are. */
const MAX_CHARS = 40_000;
const INLINE = /(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)|\*\*(.+?)\*\*|(?<![\w*])\*(?!\s)([^*]+?)\*(?![\w*])/s;

/** Longer paragraphs have no emphasis: to search hostile ones for it takes long. */
const MAX_INLINE_CHARS = 5_000;

/** The text of a line with code and emphasis. */
function inline(text) {
  if (text.length > MAX_INLINE_CHARS) return [text];
  const parts = [];
  let rest = text;
  for (;;) {
    const found = INLINE.exec(rest);
    if (!found) break;
    if (found.index > 0) parts.push(rest.slice(0, found.index));
    const [all, , code, strong, emphasis] = found;
    if (code !== undefined) parts.push(h("code", {}, code));
    else if (strong !== undefined) parts.push(h("strong", {}, strong));
    else parts.push(h("em", {}, emphasis));
    rest = rest.slice(found.index + all.length);
  }
  parts.push(rest);
  return parts;
}

const FENCE = /^\s*(```+|~~~+)/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^\s*>\s?(.*)$/;

/** Lines until one for which `ends` is true, and the index of that one. */
function until(lines, from, ends) {
  let at = from;
  while (at < lines.length && !ends(lines[at])) at += 1;
  return [lines.slice(from, at), at];
}

/** Elements of a text. */
export function markdown(text) {
  if (text.length > MAX_CHARS) return [h("pre", { class: "plain-text" }, text)];
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  const made = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line)?.[1];
    if (fence) {
      const [code, end] = until(lines, at + 1, (it) => it.trim().startsWith(fence) && it.trim().length >= fence.length && !/[^`~\s]/.test(it));
      made.push(h("pre", {}, h("code", {}, code.join("\n"))));
      at = end + 1;
    } else if (line.trim() === "") {
      at += 1;
    } else if (HEADING.test(line)) {
      made.push(h("p", { class: "md-heading" }, inline(HEADING.exec(line)[2])));
      at += 1;
    } else if (ITEM.test(line)) {
      const isOrdered = /\d/.test(ITEM.exec(line)[2]);
      const items = [];
      for (let item = ITEM.exec(line); item; item = at < lines.length ? ITEM.exec(lines[at]) : null) {
        const [more, end] = until(lines, at + 1, (it) => it.trim() === "" || ITEM.test(it) || FENCE.test(it));
        const level = Math.min(4, Math.floor(item[1].length / 2));
        items.push(h("li", { class: level ? `level${level}` : null }, inline([item[3], ...more.map((it) => it.trim())].join(" "))));
        at = end;
      }
      made.push(h(isOrdered ? "ol" : "ul", {}, items));
    } else if (QUOTE.test(line)) {
      const [quoted, end] = until(lines, at, (it) => !QUOTE.test(it));
      made.push(h("blockquote", {}, inline(quoted.map((it) => QUOTE.exec(it)[1]).join("\n"))));
      at = end;
    } else {
      const [text_, end] = until(lines, at + 1, (it) => it.trim() === "" || FENCE.test(it) || HEADING.test(it) || ITEM.test(it) || QUOTE.test(it));
      made.push(h("p", {}, inline([line, ...text_].join("\n"))));
      at = end;
    }
  }
  return made;
}
