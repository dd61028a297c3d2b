// Charts as SVG. Each has its numbers as a table, for screen readers and for reading them.

import { h, svg } from "./dom.js";

const WIDTH = 640;
const HEIGHT = 200;
const LEFT = 80;
const BOTTOM = 24;
const TOP = 10;

/** Round numbers for an axis that reaches `most`, `least` or more apart. */
function ticks(most, least) {
  const rough = Math.max(most / 4, least);
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((it) => it * magnitude).find((it) => it >= rough);
  const marks = [];
  for (let at = 0; at < most + step * 0.999; at += step) marks.push(at);
  return marks;
}

function legend(series) {
  const entry = (it) => h("li", {}, svg("svg", { viewBox: "0 0 10 10", class: "swatch", "aria-hidden": "true" }, svg("rect", { width: 10, height: 10, rx: 2, class: it.className })), it.name);
  return h("ul", { class: "legend" }, series.map(entry));
}

function drawn(name, height) {
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "chart", role: "img", "aria-label": name });
}

/** A grid for `values` with the labels of the columns. `y(value)` is the position of a value, `step` the width of a column. */
function plane(name, values, columns, say) {
  const highest = Math.max(0, ...values);
  const marks = ticks(highest > 0 ? highest : 1, values.every(Number.isInteger) ? 1 : 0);
  const most = marks.at(-1);
  const height = HEIGHT - TOP - BOTTOM;
  const y = (value) => TOP + height * (1 - value / most);
  const step = (WIDTH - LEFT) / columns.length;
  const drawing = drawn(name, HEIGHT);
  for (const mark of marks) {
    drawing.append(
      svg("line", { x1: LEFT, x2: WIDTH, y1: y(mark), y2: y(mark), class: "grid" }),
      svg("text", { x: LEFT - 6, y: y(mark) + 4, class: "axis end" }, say(mark)),
    );
  }
  // There is no room for every label.
  const every = Math.ceil(columns.length / 8);
  columns.forEach((column, at) => {
    if (at % every === 0) drawing.append(svg("text", { x: LEFT + (at + 0.5) * step, y: HEIGHT - 6, class: "axis middle" }, column.label));
  });
  return { drawing, step, y };
}

/** A chart with `head` and `rows` as its table, whose first column has no name. */
function figure(name, series, drawing, head, rows) {
  return h("figure", {}, h("figcaption", {}, name), legend(series), drawing, numbers(name, ["", ...head], rows));
}

function numbers(name, head, rows) {
  return h(
    "details",
    { "data-at": `numbers ${name}` },
    h("summary", {}, "Numbers"),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        {},
        h("caption", { class: "unseen" }, name),
        h("thead", {}, h("tr", {}, head.map((it, at) => h("th", { scope: "col", class: at ? "number" : null }, it)))),
        h("tbody", {}, rows.map((row) => h("tr", {}, row.map((it, at) => (at ? h("td", { class: "number" }, it) : h("th", { scope: "row" }, it)))))),
      ),
    ),
  );
}

/**
 * Stacked bars. `series`: `{name, className}`; `columns`: `{label, values}` with a value of each series;
 * `say(value)` formats a value.
 */
export function stacked(name, series, columns, say = String) {
  const sums = columns.map((it) => it.values.reduce((a, b) => a + b, 0));
  const { drawing, step, y } = plane(name, sums, columns, say);
  columns.forEach((column, at) => {
    const x = LEFT + at * step;
    let base = 0;
    column.values.forEach((value, which) => {
      if (value === 0) return;
      const bar = { x: x + step * 0.12, width: step * 0.76, y: y(base + value), height: y(base) - y(base + value), class: series[which].className };
      drawing.append(svg("rect", bar, svg("title", {}, `${column.label}, ${series[which].name}: ${say(value)}`)));
      base += value;
    });
  });
  const rows = columns.map((it) => [it.label, ...it.values.map(say)]);
  return figure(name, series, drawing, series.map((it) => it.name), rows);
}

/** Horizontal stacked bars, one row for each column. */
export function rows(name, series, columns, say = String) {
  const sums = columns.map((it) => it.values.reduce((a, b) => a + b, 0));
  const most = Math.max(1, ...sums);
  const line = 34;
  const left = 116;
  const right = 100;
  const height = columns.length * line + 4;
  const drawing = drawn(name, height);
  columns.forEach((column, at) => {
    const y = at * line + 6;
    drawing.append(svg("text", { x: left - 10, y: y + 16, class: "axis end" }, column.label));
    let x = left;
    column.values.forEach((value, which) => {
      const width = ((WIDTH - left - right) * value) / most;
      if (width <= 0) return;
      drawing.append(svg("rect", { x, y, width, height: line - 12, class: series[which].className }, svg("title", {}, `${column.label}, ${series[which].name}: ${say(value)}`)));
      x += width;
    });
    drawing.append(svg("text", { x: x + 8, y: y + 16, class: "axis" }, column.total ?? say(sums[at])));
  });
  const lines = columns.map((it, at) => [it.label, ...it.values.map(say), it.total ?? say(sums[at])]);
  return figure(name, series, drawing, [...series.map((it) => it.name), "Total"], lines);
}

/** Lines over time. A `null` in the `values` of a column leaves out the point. */
export function lines(name, series, columns, say = String) {
  const known = columns.flatMap((it) => it.values).filter((it) => it !== null);
  const { drawing, step, y } = plane(name, known, columns, say);
  series.forEach((one, which) => {
    const points = columns.map((it, at) => [LEFT + (at + 0.5) * step, it.values[which], it.label]).filter((it) => it[1] !== null);
    const path = points.map(([x, value]) => `${x},${y(value)}`).join(" ");
    drawing.append(svg("polyline", { points: path, class: `line ${one.className}` }));
    for (const [x, value, label] of points) {
      drawing.append(svg("circle", { cx: x, cy: y(value), r: 3.5, class: one.className }, svg("title", {}, `${label}, ${one.name}: ${say(value)}`)));
    }
  });
  const table = columns.map((it) => [it.label, ...it.values.map((value) => (value === null ? "–" : say(value)))]);
  return figure(name, series, drawing, series.map((it) => it.name), table);
}
