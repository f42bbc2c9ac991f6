// Puts the page together from the JSON object in it.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const count = (n, word, many) => `${n.toLocaleString("en")} ${n === 1 ? word : many || `${word}s`}`;
const allSeries = data.studies.flatMap((study) => study.series);

function headline() {
  const { studies, claims } = data, one = studies.length === 1 ? studies[0] : null;
  const runs = studies.reduce((sum, study) => sum + study.count, 0), steps = studies.reduce((sum, study) => sum + study.steps, 0);
  const missing = studies.flatMap((study) => study.missing.map((name) => (one ? name : `${study.name}: ${name}`)));
  const notJudged = studies.filter((study) => !study.judged), quick = studies.filter((study) => study.scale === "quick");
  const tally = (word) => claims.filter((claim) => claim.verdict === word).length;
  const tile = (value, text, kind) => make("li", {}, make("b", { class: kind }, value), make("span", {}, text));
  fill(byId("headline"), {}, [
    make("h1", {}, one ? one.title : `${studies.length} studies`),
    one ? make("p", { class: "soft" }, `Study ${one.name}, scale ${one.scale}`) : make("ul", { class: "soft" }, studies.map((study) => make("li", {}, `${study.title} (${study.scale})`))),
    quick.length ? make("p", { class: "banner", id: "quick" }, make("strong", {}, "QUICK SCALE: NO VERDICTS. "),
      `${one ? "This study was" : `${quick.map((study) => study.name).join(", ")} ${quick.length === 1 ? "was" : "were"}`} run short, to see that everything works. ` +
      "These numbers say nothing about the paper, and no claim is judged by them.") : null,
    notJudged.filter((study) => study.scale !== "quick").map((study) => make("p", { class: "banner" }, `${study.name} is a study of one's own (${study.scale}): no claim of the paper is judged by it.`)),
    missing.length ? make("div", { class: "banner", id: "missing" }, make("strong", {}, `NOT FINISHED: ${count(missing.length, "group")}. `), "What follows is without ",
      missing.slice(0, 8).join(", "), missing.length > 8 ? ` and ${missing.length - 8} more.` : ".") : null,
    make("ul", { class: "tiles" }, runs ? [tile(runs.toLocaleString("en"), "runs"), tile(brief(steps), "environment steps")] : null,
      tally("not run") === claims.length ? tile("none", "claims judged", "not-run") : ["reproduced", "contradicted", "not reproduced"].filter(tally)
        .map((word) => tile(`${SIGNS[word]} ${tally(word)}`, `claim${tally(word) === 1 ? "" : "s"} ${word}`, word.replace(" ", "-")))),
  ]);
}

function contents() {
  const link = (target, text) => make("li", {}, make("a", { href: `#${target}` }, text));
  byId("contents").append(make("ul", {}, link("claims", "Claims"), data.studies.map((study, i) => link(`study-${i}`, data.studies.length === 1 ? "Results" : study.title)),
    data.studies.some((study) => study.count) ? link("runs", "Every run") : null, link("footer", "Reproduce")));
}

function methodButtons() {
  const group = byId("methods");
  for (const entry of data.methods) {
    const mine = allSeries.filter((series) => series.method === entry.method);
    const button = make("button", { type: "button", "data-method": entry.method, on: { click: () => setShown(mine, !mine.some(isShown)) } },
      swatch({ colour: entry.colour, stroke: "-" }), entry.name);
    const update = () => button.setAttribute("aria-pressed", mine.some(isShown));
    redrawn.push(update);
    update();
    group.append(button);
  }
}

// auto (what the system says), light, dark; kept where the browser lets a page from disk keep anything.
function themeSwitch() {
  const button = byId("theme"), order = ["auto", "light", "dark"];
  let theme = "auto";
  try { theme = localStorage.getItem("hyper-rl-theme") || "auto"; } catch { /* not kept, then */ }
  const apply = () => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = { auto: "◑ auto", light: "☀ light", dark: "☾ dark" }[theme];
    button.setAttribute("aria-label", `Colours: ${theme}. Change`);
  };
  button.addEventListener("click", () => {
    theme = order[(order.indexOf(theme) + 1) % order.length];
    try { localStorage.setItem("hyper-rl-theme", theme); } catch { /* not kept, then */ }
    apply();
  });
  apply();
}

function copyButton(text) {
  const button = make("button", { type: "button", class: "copy", on: { click: async () => {
    let done = true;
    try { await navigator.clipboard.writeText(text); } catch {
      const area = make("textarea", { "aria-hidden": "true" });
      area.value = text;
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
    }
    button.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } } }, "Copy");
  return button;
}

function studySection(study, index) {
  const section = make("section", { id: `study-${index}`, class: "study" },
    make("h2", {}, data.studies.length === 1 ? "Results" : study.title, study.judged ? null : make("span", { class: "soft" }, ` (scale ${study.scale})`)),
    make("p", { class: "soft" }, !study.count ? study.name : [count(study.count, "run"), count(study.series.length, "line"), study.betas.length ? `β ${study.betas.length > 1 ? `${show(study.betas[0])} to ${show(study.betas.at(-1))} (${study.betas.length} values)` : show(study.betas[0])}` : null,
      count(study.seeds.length, "seed")].filter(Boolean).join(" · ")));
  byId("studies").append(section);
  section.append(...study.pictures.map(picture), ...study.tables.map(computedTable));
  if (!study.count) {
    if (!study.tables.length) section.append(make("p", {}, "Nothing of this study is finished yet."));
    return [];
  }
  section.append(summaryTable(study));
  const charts = study.charts.map((chart) => lineChart(study, chart)), maps = [...study.maps.map((panel) => heatMaps(study, panel)), ...study.paths.map((panel) => mazePaths(study, panel))];
  // Charts of one panel stand two in a row where there is room.
  let pair = null;
  for (const chart of [...charts.slice(0, 4), ...maps, ...charts.slice(4)]) {
    if (chart.node.querySelector(".panels.alone")) {
      if (!pair) section.append((pair = make("div", { class: "pair" })));
      pair.append(chart.node);
    } else { pair = null; section.append(chart.node); }
  }
  return [...charts, ...maps];
}

function footer() {
  fill(byId("footer"), {}, [make("h2", {}, "Reproduce"), data.studies.map((study) => make("div", {}, make("h3", {}, study.title),
    make("div", { class: "command" }, make("code", {}, study.command), copyButton(study.command)),
    make("p", {}, Object.entries(study.versions).map(([name, version]) => `${name} ${version}`).join(" · ")))),
  make("p", {}, `Bands and brackets are 95% bootstrap intervals of the mean and are drawn from three seeds on. Curves longer than ${data.points} points are thinned evenly to that many; ` +
    "numbers are rounded to five digits. Everything is in this one file: it needs no network and no server.")]);
}

function start() {
  headline();
  contents();
  methodButtons();
  themeSwitch();
  if (data.claims.length) claimsTable(byId("claims"), data.claims);
  // What is read first is painted first; studies and charts follow piece by piece, so a long page appears without delay.
  const waiting = data.studies.map((study, i) => () => waiting.splice(0, 0, ...studySection(study, i).map((chart) => chart.draw)));
  waiting.push(() => { if (data.studies.some((study) => study.count)) runsTable(byId("runs"), data.studies); }, footer, () => {
    document.documentElement.dataset.ready = "yes";
    if (location.hash) byId(location.hash.slice(1))?.scrollIntoView();
  });
  const work = (until) => { while (waiting.length && performance.now() < until) waiting.shift()(); };
  const rest = () => { work(performance.now() + 30); if (waiting.length) setTimeout(rest); };
  setTimeout(rest);
  const redraw = () => { for (const again of redrawn) again(); };
  addEventListener("beforeprint", () => { work(Infinity); printing = true; redraw(); });
  addEventListener("afterprint", () => { printing = false; redraw(); });
  let width = innerWidth, soon = 0;
  addEventListener("resize", () => {
    clearTimeout(soon);
    soon = setTimeout(() => { if (width !== innerWidth) { width = innerWidth; redraw(); } }, 120);
  });
}

start();
