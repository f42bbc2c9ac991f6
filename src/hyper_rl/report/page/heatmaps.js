// Heat maps of visits: all of them small, side by side, and one large that answers to pointer and arrow keys.

const RAMP = [[68, 1, 84], [65, 68, 135], [42, 120, 142], [34, 168, 132], [122, 209, 81], [253, 231, 37]];

function rampAt(share) {
  const place = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1), i = Math.min(Math.floor(place), RAMP.length - 2);
  return RAMP[i].map((from, c) => Math.round(from + (RAMP[i + 1][c] - from) * (place - i)));
}

const WALL_COLOUR = [106, 115, 125, 255];
const visitsOf = (count) => (count < 0 ? "wall" : `${count.toLocaleString("en")} visits`);

// One pixel per cell, on one logarithmic scale; a cell that nobody visited stays empty, and walls have a colour of their own.
function paint(canvas, visits, rows, columns, most) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  visits.forEach((count, i) => {
    if (count > 0) image.data.set([...rampAt(Math.log(count) / Math.log(most)), 255], 4 * i);
    else if (count < 0) image.data.set(WALL_COLOUR, 4 * i);
  });
  context.putImageData(image, 0, 0);
}

function heatMaps(study, panel) {
  const { rows, columns } = panel, most = Math.max(2, ...panel.maps.map((map) => Math.max(...map.visits)));
  const seeds = [...new Set(panel.maps.map((map) => map.seed))], betas = [...new Set(panel.maps.map((map) => map.beta))].sort((a, b) => a - b);
  const used = [...new Set(panel.maps.map((map) => map.series))];
  const last = Math.max(...used);
  let now = panel.maps.find((map) => map.series === last && map.beta === betas[betas.length >> 1]) || panel.maps[0];
  let cursor = null;
  const find = (series, beta, seed) => panel.maps.find((map) => map.series === series && map.beta === beta && map.seed === seed);

  const canvas = make("canvas", { role: "img", tabindex: 0 }), spot = make("div", { class: "cell", hidden: true });
  const caption = make("h4", { "aria-live": "polite" }), grid = make("div", { class: "thumbs", tabindex: 0, role: "group", "aria-label": "All heat maps of this seed" });
  const pick = (map) => { if (map) { now = map; draw(); } };
  const option = (value, text) => make("option", { value }, text);
  const chooser = (name, values, text, change) => make("label", {}, name, make("select", { "data-pick": name, on: { change: (event) => change(values[event.target.selectedIndex]) } },
    values.map((value, i) => option(i, text(value)))));
  const controls = make("div", { class: "controls" },
    chooser("method", used, (i) => study.series[i].name, (series) => pick(find(series, now.beta, now.seed) || panel.maps.find((map) => map.series === series))),
    chooser("β", betas, show, (beta) => pick(find(now.series, beta, now.seed))),
    chooser("seed", seeds, String, (seed) => pick(find(now.series, now.beta, seed))));

  const drawThumbs = () => {
    const shown = used.filter((i) => isShown(study.series[i]));
    const one = (series, beta) => {
      const map = find(series, beta, now.seed);
      if (!map) return make("td", {});
      const picture = make("canvas", {});
      paint(picture, map.visits, rows, columns, most);
      return make("td", {}, make("button", { type: "button", "aria-current": map === now, title: `${study.series[series].name}, β = ${show(beta)}`,
        "aria-label": `${study.series[series].name}, β = ${show(beta)}`, "data-map": `${series}/${beta}`,
        on: { click: () => { pick(map); grid.querySelector(`[data-map="${series}/${beta}"]`).focus(); } } }, picture));
    };
    grid.replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, make("th", {}, "β"), betas.map((beta) => make("th", { scope: "col" }, show(beta))))),
      make("tbody", {}, shown.map((series) => make("tr", {}, make("th", { scope: "row" }, study.series[series].name), betas.map((beta) => one(series, beta)))))));
  };
  const draw = () => {
    const name = `${study.series[now.series].name}, β = ${show(now.beta)}, seed ${now.seed}`;
    caption.textContent = name;
    const reached = now.visits.filter((count) => count > 0).length;
    canvas.setAttribute("aria-label", `Visits of ${panel.panel}: ${name}. ${reached} of ${now.visits.filter((count) => count >= 0).length} cells visited. Arrow keys read cells.`);
    paint(canvas, now.visits, rows, columns, most);
    for (const [pickName, values, value] of [["method", used, now.series], ["β", betas, now.beta], ["seed", seeds, now.seed]])
      controls.querySelector(`[data-pick="${pickName}"]`).selectedIndex = values.indexOf(value);
    drawThumbs();
    if (table.open) table.fill();
  };
  const read = (row, column, aloud) => {
    cursor = [Math.min(rows - 1, Math.max(0, row)), Math.min(columns - 1, Math.max(0, column))];
    const [r, c] = cursor, box = canvas.getBoundingClientRect(), text = `row ${r}, column ${c}: ${visitsOf(now.visits[r * columns + c])}`;
    Object.assign(spot.style, { left: `${(100 * c) / columns}%`, top: `${(100 * r) / rows}%`, width: `${100 / columns}%`, height: `${100 / rows}%` });
    spot.hidden = false;
    tip.at(box.left + scrollX + ((c + 1) * box.width) / columns, box.top + scrollY + (r * box.height) / rows, make("span", {}, text));
    if (aloud) say(text);
  };
  const leave = () => { spot.hidden = true; tip.away(); };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    read(Math.floor(((event.clientY - box.top) / box.height) * rows), Math.floor(((event.clientX - box.left) / box.width) * columns), false);
  });
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("blur", leave);
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Escape") leave();
    if (!move) return;
    event.preventDefault();
    const [r, c] = cursor || [(rows >> 1) - move[0], (columns >> 1) - move[1]];
    read(r + move[0], c + move[1], true);
  });

  const body = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Visits as a table" });
  const table = make("details", {}, make("summary", {}, "Visits of the large map as a table"), body);
  table.fill = () => body.replaceChildren(make("table", {}, make("tbody", {}, Array.from({ length: rows }, (_, r) =>
    make("tr", {}, now.visits.slice(r * columns, (r + 1) * columns).map((count) => make("td", { class: "number" }, count < 0 ? "" : String(count))))))));
  table.addEventListener("toggle", () => { if (table.open) table.fill(); });

  const colours = RAMP.map((colour) => `rgb(${colour.join(" ")})`).join(", ");
  const ramp = make("div", { class: "ramp" });
  ramp.style.background = `linear-gradient(to right, ${colours})`;
  const note = `How often each cell was visited over the whole run; pale: never${panel.maps.some((map) => map.visits.includes(-1)) ? ", dark grey: walls" : ""}. One logarithmic colour scale for all.` +
    (panel.left_out ? ` Heat maps of ${panel.left_out} more seed${panel.left_out === 1 ? "" : "s"} are left out to keep this page small.` : "");
  const node = make("section", { class: "chart", "data-chart": "visits" }, make("h3", {}, `Where the agent has been: ${panel.panel}`), make("p", { class: "note" }, note), controls,
    make("div", { class: "heat" }, make("figure", {}, make("figcaption", {}, caption), make("div", { class: "field" }, canvas, spot), ramp,
      make("div", { class: "ends" }, make("span", {}, "1 visit"), make("span", {}, `${most.toLocaleString("en")} visits`))), grid), table);
  redrawn.push(drawThumbs);
  return { node, draw };
}
