"use strict";
// Small helpers, and the line chart that all charts of the page are. Text from files only ever becomes text nodes.

const DASHES = { "-": "", "--": "7 4", ":": "2 3", "-.": "8 3 2 3" };
const MOST_WIDENED = 6;
const MARKERS = {
  o: (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
  s: (r) => `M${-r} ${-r}H${r}V${r}H${-r}Z`,
  D: (r) => `M0 ${-1.3 * r}L${1.3 * r} 0L0 ${1.3 * r}L${-1.3 * r} 0Z`,
  v: (r) => `M${-1.2 * r} ${-r}H${1.2 * r}L0 ${1.2 * r}Z`,
  "^": (r) => `M${-1.2 * r} ${r}H${1.2 * r}L0 ${-1.2 * r}Z`,
};
const hidden = new Set(); // "method|series name" of the lines that are switched off, in all charts at once
const redrawn = []; // what to call when a line is switched on or off, or the width changes
let unique = 0;
let printing = false;
const PRINTED_WIDTH = 360;

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (name === "hue") node.style.setProperty("--hue", value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat(3).filter((child) => child != null));
  return node;
}
const make = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const shape = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

function show(value) {
  if (value == null) return "–";
  if (Math.abs(value) >= 10000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}
const showWith = (value, low, high) =>
  low == null ? show(value) : `${show(value)} [${show(low)}, ${show(high)}]`;
const signs = (text) => text.replaceAll(">=", "≥").replaceAll("<=", "≤");
function brief(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(4))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(4))}k`;
  return String(Number(value.toPrecision(4)));
}
const power = (exponent) =>
  exponent === 0 ? "1" : exponent === 1 ? "10" : "10" + [...String(exponent)].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] || "⁻").join("");

const keyOf = (series) => `${series.method}|${series.name}`;
const isShown = (series) => !hidden.has(keyOf(series));
function setShown(list, shown) {
  for (const series of list) hidden[shown ? "delete" : "add"](keyOf(series));
  for (const again of redrawn) again();
}
function swatch(series, stroke) {
  return shape("svg", { class: "swatch", viewBox: "0 0 24 10", "aria-hidden": "true" },
    shape("line", { class: "hue", hue: series.colour, x1: 0, x2: 24, y1: 5, y2: 5, "stroke-width": 3,
      "stroke-dasharray": DASHES[stroke || series.stroke] }));
}

const tip = {
  node: document.getElementById("tip"),
  at(x, y, ...children) {
    this.node.replaceChildren(...children);
    this.node.hidden = false;
    const width = this.node.offsetWidth, edge = document.documentElement.clientWidth + scrollX;
    this.node.style.left = `${Math.max(scrollX + 4, x + 14 + width > edge ? x - width - 14 : x + 14)}px`;
    this.node.style.top = `${Math.max(scrollY + 4, y - this.node.offsetHeight - 10)}px`;
  },
  away() { this.node.hidden = true; },
};
const say = (text) => { document.getElementById("said").textContent = text; };

function ticksBetween(low, high, wanted) {
  const rough = (high - low) / Math.max(wanted, 1), unit = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((m) => m * unit).find((size) => size >= rough) || unit;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(Number((i * step).toPrecision(10)));
  return found;
}

function extent(lists) {
  let low = Infinity, high = -Infinity;
  for (const list of lists) for (const v of list || []) if (v != null) { low = Math.min(low, v); high = Math.max(high, v); }
  return low > high ? [0, 1] : [low, high];
}

// The scales of one panel. They do not depend on which lines are on: axes that jump are hard to read.
function scalesOf(chart, lines, size) {
  let [x0, x1] = extent(lines.map((line) => chart.xs[line.x]));
  let [y0, y1] = chart.limits || extent(lines.flatMap((line) => [line.y, line.low, line.high]));
  if (!chart.limits && y0 > 0 && y0 < y1 * 0.7) y0 = 0;
  if (!chart.log && x0 > 0 && x0 < x1 * 0.1) x0 = 0;
  if (y0 === y1) { y0 -= Math.abs(y0) * 0.1 || 1; y1 += Math.abs(y1) * 0.1 || 1; }
  const yTicks = ticksBetween(y0, y1, 5), longest = Math.max(...yTicks.map((v) => brief(v).length));
  const room = { left: 30 + 6.6 * longest, right: 14, top: 8, bottom: 38 };
  const pad = (y1 - y0) * 0.04, place = chart.log ? Math.log10 : (v) => v;
  if (chart.log && x0 === x1) { x0 /= 10; x1 *= 10; }
  const [a, b] = [place(x0), place(x1)], slack = chart.log ? (b - a) * 0.03 : 0;
  const across = (v) => room.left + ((place(v) - a + slack) / (b - a + 2 * slack || 1)) * (size.width - room.left - room.right);
  const up = (v) => room.top + (1 - (v - y0 + pad) / (y1 - y0 + 2 * pad)) * (size.height - room.top - room.bottom);
  let xTicks = ticksBetween(x0, x1, size.width / 90).map((v) => [v, brief(v)]);
  if (chart.log) {
    const first = Math.ceil(a - 1e-9), last = Math.floor(b + 1e-9), every = Math.ceil((last - first + 1) / (size.width / 42));
    xTicks = [];
    for (let e = first; e <= last; e += every) xTicks.push([10 ** e, power(e)]);
  }
  return { room, across, up, xTicks, yTicks };
}

function pathOf(xs, ys, across, up) {
  let text = "", pen = "M";
  ys.forEach((y, i) => {
    if (y == null) { pen = "M"; return; }
    text += `${pen}${across(xs[i]).toFixed(1)} ${up(y).toFixed(1)}`;
    pen = "L";
  });
  return text;
}
function bandOf(xs, low, high, across, up) {
  const kept = xs.map((x, i) => i).filter((i) => low[i] != null);
  if (kept.length < 2) return "";
  const there = kept.map((i) => `${across(xs[i]).toFixed(1)} ${up(high[i]).toFixed(1)}`);
  const back = kept.reverse().map((i) => `${across(xs[i]).toFixed(1)} ${up(low[i]).toFixed(1)}`);
  return `M${there.join("L")}L${back.join("L")}Z`;
}

const nameOf = (study, line) => study.series[line.series].name + (line.suffix ? ` (${line.suffix})` : "");

function drawPanel(host, study, chart, panel, view) {
  const width = printing ? PRINTED_WIDTH : Math.max(260, host.clientWidth || 340), height = Math.round(Math.min(330, Math.max(215, width * 0.56)));
  const lines = panel.views[view] || [], scales = scalesOf(chart, lines, { width, height });
  const shown = lines.filter((line) => isShown(study.series[line.series]));
  const { room, across, up } = scales, [right, floor] = [width - room.right, height - room.bottom], id = `plot${++unique}`;
  const names = shown.map((line) => nameOf(study, line)).join(", ") || "nothing is switched on";
  const svg = shape("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0,
    "aria-labelledby": `${id}t`, "aria-describedby": `${id}d` },
    shape("g", {}, shape("title", { id: `${id}t` }, `${chart.title}: ${panel.title}`),
      shape("desc", { id: `${id}d` }, `${chart.y} against ${chart.x}. Lines: ${names}. ` +
        "Arrow keys read the values; a table follows the chart.")),
    scales.yTicks.map((v) => [shape("line", { class: "rule", x1: room.left, x2: right, y1: up(v), y2: up(v) }),
      shape("text", { x: room.left - 7, y: up(v) + 4, "text-anchor": "end" }, brief(v))]),
    scales.xTicks.map(([v, text]) => [shape("line", { class: "axis", x1: across(v), x2: across(v), y1: floor, y2: floor + 4 }),
      shape("text", { x: across(v), y: floor + 17, "text-anchor": "middle" }, text)]),
    shape("line", { class: "axis", x1: room.left, x2: right, y1: floor, y2: floor }),
    shape("text", { x: (room.left + right) / 2, y: height - 4, "text-anchor": "middle" }, chart.x),
    shape("text", { transform: `translate(11 ${(room.top + floor) / 2}) rotate(-90)`, "text-anchor": "middle" }, chart.y));
  shown.forEach((line, place) => {
    // A line that others are drawn over is the wider for it, as in the figures, so that equal curves all show.
    const under = shown.length > MOST_WIDENED ? 0 : Math.min(shown.length - 1 - place, 4);
    const series = study.series[line.series], xs = chart.xs[line.x], common = { hue: series.colour, "data-key": keyOf(series) };
    if (line.low) svg.append(shape("path", { class: "band hue-fill", d: bandOf(xs, line.low, line.high, across, up), ...common }));
    svg.append(shape("path", { class: "curve hue", d: pathOf(xs, line.y, across, up),
      "stroke-width": 1.7 + 1.1 * under, "stroke-dasharray": DASHES[line.stroke || series.stroke], ...common }));
    if (chart.markers || xs.length === 1) line.y.forEach((y, i) => {
      if (y != null) svg.append(shape("path", { class: "hue-fill", d: MARKERS[series.marker](2.8 + 0.9 * under),
        transform: `translate(${across(xs[i])} ${up(y)})`, ...common }));
    });
  });
  const mark = shape("g", {});
  svg.append(mark);
  readValues(svg, mark, study, chart, shown, scales, { width, height, floor });
  host.replaceChildren(svg);
}

// Hover and arrow keys: a guide at the nearest x that some line has, and what every line says there.
function readValues(svg, mark, study, chart, shown, { across, up, room }, size) {
  const places = [...new Set(shown.flatMap((line) => chart.xs[line.x]))].sort((a, b) => a - b);
  let at = -1;
  const leave = () => { mark.replaceChildren(); tip.away(); at = -1; };
  const go = (index, aloud) => {
    if (!places.length) return;
    at = Math.min(places.length - 1, Math.max(0, index));
    const x = places[at], told = [];
    for (const line of shown) {
      const i = chart.xs[line.x].indexOf(x);
      if (i >= 0 && line.y[i] != null) told.push([line, i]);
    }
    told.sort(([a, i], [b, j]) => b.y[j] - a.y[i]);
    mark.replaceChildren(shape("line", { class: "guide", x1: across(x), x2: across(x), y1: room.top, y2: size.floor }),
      ...told.map(([line, i]) => shape("circle", { class: "hue-fill", hue: study.series[line.series].colour,
        cx: across(x), cy: up(line.y[i]), r: 4.5 })));
    const head = `${chart.x} ${chart.log ? show(x) : x.toLocaleString("en")}`, box = svg.getBoundingClientRect();
    const texts = told.map(([line, i]) => [nameOf(study, line), line.low ? showWith(line.y[i], line.low[i], line.high[i]) : show(line.y[i])]);
    const rows = told.slice(0, 12).map(([line], row) => make("tr", {}, make("td", {}, swatch(study.series[line.series], line.stroke), texts[row][0]),
      make("td", { class: "number" }, texts[row][1])));
    const top = told.length ? up(told[0][0].y[told[0][1]]) : room.top, scale = box.width / size.width;
    tip.at(box.left + scrollX + across(x) * scale, box.top + scrollY + top * scale, make("b", {}, head), make("table", {}, make("tbody", {}, rows)),
      told.length > 12 ? make("span", { class: "soft" }, `and ${told.length - 12} more`) : "");
    if (aloud) say(`${head}: ${texts.map((pair) => pair.join(" ")).join("; ")}`);
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), where = ((event.clientX - box.left) / box.width) * size.width;
    let best = 0;
    places.forEach((x, i) => { if (Math.abs(across(x) - where) < Math.abs(across(places[best]) - where)) best = i; });
    go(best, false);
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("focus", () => { if (svg.matches(":focus-visible")) go(places.length - 1, true); });
  svg.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: places.length - 1, PageUp: at - 10, PageDown: at + 10 }[event.key];
    if (event.key === "Escape") leave();
    if (to === undefined) return;
    event.preventDefault();
    go(at < 0 && event.key !== "Home" ? places.length - 1 : to, true);
  });
}

function legendOf(study, used) {
  const node = make("div", { class: "buttons legend", role: "group", "aria-label": "Lines shown" });
  const dim = (key) => {
    for (const line of node.closest(".chart").querySelectorAll("[data-key]")) line.classList.toggle("dimmed", key !== null && line.dataset.key !== key);
  };
  for (const series of used) {
    const button = make("button", { type: "button", "data-series": keyOf(series), on: {
      click: () => setShown([series], !isShown(series)), pointerenter: () => dim(keyOf(series)), pointerleave: () => dim(null),
      focus: () => dim(keyOf(series)), blur: () => dim(null) } }, swatch(series), series.name);
    const update = () => button.setAttribute("aria-pressed", isShown(series));
    redrawn.push(update);
    update();
    node.append(button);
  }
  return node;
}

function lineChart(study, chart) {
  let view = chart.views[0].key;
  const hosts = chart.panels.map(() => make("div", {}));
  const figures = chart.panels.map((panel, i) => make("figure", {}, make("figcaption", {}, make("h4", {}, panel.title)), hosts[i]));
  const draw = () => {
    chart.panels.forEach((panel, i) => drawPanel(hosts[i], study, chart, panel, view));
    if (table.open) table.fill();
  };
  const used = [...new Set(chart.panels.flatMap((panel) => Object.values(panel.views).flatMap((lines) => lines.map((l) => l.series))))].sort((a, b) => a - b);
  const picker = chart.views.length > 1 ? make("label", {}, "β", make("select", { on: { change: (event) => { view = event.target.value; draw(); } } },
    chart.views.map((one) => make("option", { value: one.key }, one.name)))) : null;
  const table = tableOf(study, chart, () => view);
  const node = make("section", { class: "chart", "data-chart": chart.id }, make("h3", {}, chart.title), make("p", { class: "note" }, chart.note),
    make("div", { class: "controls" }, legendOf(study, used.map((i) => study.series[i])), picker),
    make("div", { class: `panels ${{ 1: "alone", 2: "even", 4: "even" }[figures.length] || ""}` }, figures), table);
  redrawn.push(draw);
  return { node, draw };
}

// The same numbers as a table, made when it is first opened.
function tableOf(study, chart, view) {
  const body = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${chart.title} as a table` });
  const details = make("details", {}, make("summary", {}, "Values as a table"), body);
  details.fill = () => {
    body.replaceChildren(...chart.panels.map((panel) => {
      const lines = (panel.views[view()] || []).filter((line) => isShown(study.series[line.series]));
      const places = [...new Set(lines.flatMap((line) => chart.xs[line.x]))].sort((a, b) => a - b);
      const cell = (line, x) => {
        const i = chart.xs[line.x].indexOf(x);
        return i < 0 ? "" : line.low ? showWith(line.y[i], line.low[i], line.high[i]) : show(line.y[i]);
      };
      return make("table", {}, make("caption", {}, panel.title),
        make("thead", {}, make("tr", {}, make("th", { scope: "col", class: "number" }, chart.x), lines.map((line) => make("th", { scope: "col", class: "number" }, nameOf(study, line))))),
        make("tbody", {}, places.map((x) => make("tr", {}, make("th", { scope: "row", class: "number" }, show(x)), lines.map((line) => make("td", { class: "number" }, cell(line, x)))))));
    }));
  };
  details.addEventListener("toggle", () => { if (details.open) details.fill(); });
  return details;
}
