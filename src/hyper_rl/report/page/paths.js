// Paths through mazes: one map for each line of the study, coloured by who acted.

const UNIT = 100; // whole numbers to a cell, as the data has them
const RIM = 65; // of the outer wall, this much is left out

function mazeMap(panel, item, name) {
  const rows = panel.map.length, columns = panel.map[0].length;
  const walls = panel.map.flatMap((line, r) => [...line].map((mark, c) => (mark === "1" ? `M${c * UNIT} ${r * UNIT}h${UNIT}v${UNIT}h${-UNIT}Z` : ""))).join("");
  const way = (path, from, to) => path.x.slice(from, to).map((x, i) => `${i ? "L" : "M"}${x} ${path.y[from + i]}`).join("");
  const reached = item.paths.filter((path) => path.reached).length;
  const star = (x, y, r) => `M${Array.from({ length: 10 }, (_, i) => {
    const turn = Math.PI * (i / 5 - 0.5), reach = i % 2 ? r * 0.45 : r;
    return `${(x + reach * Math.cos(turn)).toFixed(1)} ${(y + reach * Math.sin(turn)).toFixed(1)}`;
  }).join("L")}Z`;
  return shape("svg", { class: "maze", role: "img", viewBox: `${RIM} ${RIM} ${columns * UNIT - 2 * RIM} ${rows * UNIT - 2 * RIM}`,
    "aria-label": `Paths of ${name}: ${item.paths.length} episodes, goal reached in ${reached}` },
  item.paths.map((path) => shape("circle", { class: "near", cx: path.goal[0], cy: path.goal[1], r: panel.radius })),
  shape("path", { class: "wall", d: walls }),
  item.paths.map((path) => {
    const last = path.x.length, at = path.handover == null ? last : path.handover;
    return [at > 0 ? shape("path", { class: "way task", d: way(path, 0, at === last ? last : at + 1) }) : null,
      at < last ? shape("path", { class: "way explorer", d: way(path, at, last) }) : null];
  }),
  item.paths.map((path) => [shape("circle", { class: "mark", cx: path.x[0], cy: path.y[0], r: 13 }),
    path.handover ? shape("path", { class: "mark", d: `M${path.x[path.handover]} ${path.y[path.handover] - 16}l16 16l-16 16l-16 -16Z` }) : null,
    shape("path", { class: "goal", d: star(path.goal[0], path.goal[1], 24) })]));
}

function mazePaths(study, panel) {
  const betas = [...new Set(panel.items.map((item) => item.beta))].sort((a, b) => a - b);
  let beta = betas[betas.length >> 1];
  const maps = make("div", { class: "mazes" });
  const told = (path) => `${path.reached ? "goal reached" : "goal not reached"} in ${count(path.steps, "step")}${path.length == null ? "" : `, L = ${path.length}`}`;
  const draw = () => {
    const shown = panel.items.filter((item) => item.beta === beta && isShown(study.series[item.series]));
    maps.replaceChildren(...shown.map((item) => {
      const name = `${study.series[item.series].name}, β = ${show(item.beta)}, seed ${item.seed}`;
      return make("figure", {}, make("figcaption", {}, make("h4", {}, name)), mazeMap(panel, item, name),
        make("ol", { class: "soft" }, item.paths.map((path) => make("li", {}, told(path)))));
    }));
    if (!shown.length) maps.append(make("p", { class: "soft" }, "All lines are switched off."));
  };
  const controls = betas.length > 1 ? make("div", { class: "controls" }, make("label", {}, "β", make("select", { "data-pick": "path-β", on: { change: (event) => { beta = betas[event.target.selectedIndex]; draw(); } } },
    betas.map((value) => make("option", { value: String(value) }, show(value)))))) : null;
  if (controls) controls.querySelector("select").selectedIndex = betas.indexOf(beta);
  const key = (kind, text) => make("span", {}, shape("svg", { class: "swatch", viewBox: "0 0 24 10", "aria-hidden": "true" }, shape("line", { class: `way ${kind}`, x1: 0, x2: 24, y1: 5, y2: 5 })), text);
  const note = "Episodes as training would play them next, with its noise, by the learners at its end: first seed, nothing chosen by what came out. " +
    "Ring: start. Diamond: hand-over from repositioning to exploring. Star: goal.";
  const node = make("section", { class: "chart", "data-chart": "paths" }, make("h3", {}, `Who goes where: ${panel.panel}`), make("p", { class: "note" }, note),
    controls, make("p", { class: "keys" }, key("task", "task policy (Hyper: repositioning)"), key("explorer", "explorer")), maps);
  redrawn.push(draw);
  return { node, draw };
}

// What was computed and not trained: tables, and the figures of the study folder.
function computedTable(table) {
  return make("section", { class: "chart", "data-chart": "table" }, make("h3", {}, table.title), make("p", { class: "note" }, table.note),
    make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": table.title }, make("table", {},
      make("thead", {}, make("tr", {}, table.columns.map((name, i) => make("th", { scope: "col", class: typeof table.rows[0]?.[i] === "number" ? "number" : "" }, name)))),
      make("tbody", {}, table.rows.map((row) => make("tr", {}, row.map((value) => make("td", { class: typeof value === "number" ? "number" : "text" }, typeof value === "number" ? show(value) : value))))))));
}

function picture(one) {
  const image = make("img", { alt: one.name, class: "drawn" });
  image.src = `data:image/png;base64,${one.png}`;
  return make("figure", { class: "chart", "data-chart": "picture" }, image);
}
