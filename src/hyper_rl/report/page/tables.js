// The tables of the page: claims with their verdicts, what each study came to, and every run.

const SIGNS = { "reproduced": "✔", "contradicted": "✘", "not reproduced": "◐", "not run": "○" };
const verdictClass = (word) => `verdict ${word.replace(" ", "-")}`;

function claimsTable(section, claims) {
  const judged = claims.filter((claim) => claim.verdict !== "not run");
  const near = claims.filter((claim) => claim.asked), far = claims.filter((claim) => !claim.asked);
  const counts = Object.keys(SIGNS).map((word) => [word, near.filter((claim) => claim.verdict === word).length]);
  const off = new Set();
  let showFar = false;
  const body = make("tbody", {});
  const draw = () => {
    body.replaceChildren(...[...near, ...(showFar ? far : [])].filter((claim) => !off.has(claim.verdict)).map(claimRow));
    body.closest("table").hidden = !body.children.length;
  };
  const chips = counts.filter(([, count]) => count).map(([word, count]) => {
    const button = make("button", { type: "button", "aria-pressed": "true", on: { click: () => {
      off[off.has(word) ? "delete" : "add"](word);
      button.setAttribute("aria-pressed", !off.has(word));
      draw();
    } } }, make("span", { class: verdictClass(word) }, `${SIGNS[word]} ${count} ${word}`));
    return button;
  });
  const more = make("button", { type: "button", class: "more", "aria-expanded": showFar, on: { click: () => {
    showFar = !showFar;
    more.setAttribute("aria-expanded", showFar);
    more.textContent = showFar ? "Hide claims of other studies" : `Show ${far.length} claims that need other studies`;
    draw();
  } } }, `Show ${far.length} claims that need other studies`);
  section.append(make("h2", { id: "claims-title" }, "Claims of the paper"),
    make("p", { class: "note" }, "Each sentence that runs can support or refute, against a threshold written down with it. Reproduced: the whole 95% interval of every check is on the " +
      "claimed side; contradicted: that of some check is on the other side; not reproduced: the runs do not settle it." + (judged.length ? "" : near.length ? " None could be judged from what is here." : " No claim is about the studies shown here.")),
    make("div", { class: "controls chips" }, make("div", { class: "buttons", role: "group", "aria-label": "Verdicts shown" }, chips), far.length ? more : null),
    make("div", { class: "wide" }, make("table", { class: "cards" }, make("thead", {}, make("tr", {}, ["Claim", "Verdict", "Statistic [95%]", "Threshold", "Study"].map((name) => make("th", { scope: "col" }, name)))), body)));
  section.hidden = false;
  draw();
}

function claimRow(claim) {
  const check = claim.deciding == null ? null : claim.checks[claim.deciding];
  const holding = claim.checks.filter((one) => one.outcome === "holds").length;
  const several = claim.checks.length > 1 ? ` (${holding} of ${claim.checks.length} hold)` : "";
  const details = make("details", {}, make("summary", {}, claim.claim), make("blockquote", {}, `“${claim.sentence}” (${claim.where})`),
    make("p", { class: "soft" }, signs(`Judged on: ${claim.runs}. Statistic: ${claim.statistic}. Threshold ${claim.threshold}: ${claim.reason}.`)),
    claim.checks.length ? make("ul", {}, claim.checks.map((one) => make("li", {}, signs(`${one.label}: ${one.statistic}, threshold ${one.threshold}: ${one.outcome}`)))) : null);
  return make("tr", { "data-claim": claim.id }, make("td", { class: "claim" }, details),
    make("td", { "data-label": "Verdict" }, make("span", { class: verdictClass(claim.verdict) }, `${SIGNS[claim.verdict]} ${claim.verdict}`),
      claim.note ? make("div", { class: "soft" }, claim.note === "quick" ? "quick scale gives no verdict" : claim.note) : null),
    make("td", { "data-label": "Statistic" }, check ? signs(`${check.label}: ${check.statistic}${several}`) : "–"),
    make("td", { "data-label": "Threshold" }, signs(claim.threshold)), make("td", { "data-label": "Study", class: "name" }, claim.study || claim.studies.join(" or ")));
}

function summaryTable(study) {
  const { rows, swept } = study.summary, unit = study.column === "success";
  const panels = new Set(rows.map((row) => row.panel)).size > 1;
  const most = Math.max(...rows.map((row) => Math.abs(row.final[0] ?? 0)), 1e-9);
  const cell = (label, values, hue, full) => make("td", { "data-label": label },
    values == null || values[0] == null ? "–" : [meter(values[0] / full, hue), make("span", { class: "number" }, showWith(...values))]);
  const label = unit ? "Final success" : "Final return";
  return make("section", { class: "chart" }, make("h3", {}, "What it came to"),
    make("p", { class: "note" }, `Mean over all runs of a line${study.betas.length > 1 ? ", all β together," : ""} with 95% bootstrap interval from three runs on.` +
      (swept ? " Robustness score: area under performance against log β, divided by the width; 1 means as good as can be at every β swept, and scores compare only over the same β." : "")),
    make("div", { class: "wide" }, make("table", { class: "cards summary" }, make("thead", {}, make("tr", {}, [panels ? "Task" : null, "Line", label, swept ? "Robustness score" : null, "Runs"].filter(Boolean)
      .map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, rows.map((row) => {
      const series = study.series[row.series];
      return make("tr", {}, panels ? make("td", {}, row.panel) : null, make("td", {}, swatch(series), series.name), cell(label, row.final, series.colour, unit ? 1 : most),
        swept ? cell("Robustness score", row.score, series.colour, unit ? 1 : most) : null, make("td", { "data-label": "Runs" }, String(row.runs)));
    })))));
}

function meter(share, hue) {
  const inside = make("i", { hue });
  inside.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  return make("span", { class: "meter", "aria-hidden": "true" }, inside);
}

const AT_FIRST = 50;

function runsTable(section, studies) {
  const several = studies.length > 1, finals = [...new Set(studies.flatMap((study) => study.runs.columns))];
  const names = [...(several ? ["study"] : []), "task", "line", "β", "seed", ...finals];
  const words = several ? 3 : 2;
  const rows = studies.flatMap((study) => study.runs.rows.map((row) => [...(several ? [study.name + (study.judged ? "" : ` (${study.scale})`)] : []),
    row[0], study.series[row[1]].name, row[2], row[3], ...finals.map((name) => { const i = study.runs.columns.indexOf(name); return i < 0 ? null : row[4 + i]; })]));
  const texts = new Map(rows.map((row) => [row, row.map((value, i) => (value == null ? "" : i < words ? value : `${names[i]}=${show(value)}`)).join(" ").toLowerCase()]));
  let order = null, all = false, query = "";
  const body = make("tbody", {}), told = make("span", { class: "soft", role: "status" }), more = make("button", { type: "button", class: "more", on: { click: () => { all = true; draw(); } } });
  const compare = (a, b) => {
    const [x, y] = [a[order.column], b[order.column]];
    if (x == null || y == null) return (x == null) - (y == null);
    return order.sign * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y);
  };
  const cell = (value, i) => make("td", { class: i < words ? "text" : "number" }, i < words ? value : names[i] === "finite" ? (value ? "yes" : "NO") : show(value));
  const draw = () => {
    const asked = query.toLowerCase().split(/\s+/).filter(Boolean);
    let found = rows.filter((row) => asked.every((word) => texts.get(row).includes(word)));
    if (order) found = [...found].sort(compare);
    const drawn = all ? found : found.slice(0, AT_FIRST);
    body.replaceChildren(...drawn.map((row) => make("tr", {}, row.map(cell))));
    told.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} runs`;
    more.hidden = drawn.length === found.length;
    more.textContent = `Show all ${found.length.toLocaleString("en")}`;
  };
  const heads = names.map((name, column) => {
    const head = make("th", { scope: "col", class: column < words ? "" : "number" }, make("button", { type: "button", on: { click: () => {
      order = { column, sign: order && order.column === column ? -order.sign : 1 };
      heads.forEach((other, i) => (i === column ? other.setAttribute("aria-sort", order.sign > 0 ? "ascending" : "descending") : other.removeAttribute("aria-sort")));
      draw();
    } } }, name));
    return head;
  });
  const search = make("input", { type: "search", placeholder: "hyper β=0.1 seed=3", on: { input: (event) => { query = event.target.value; draw(); } } });
  section.append(make("h2", { id: "runs-title" }, "Every run"), make("p", { class: "note" }, "All words of the search must occur in a row. Column heads sort, again to turn round."),
    make("div", { class: "controls search" }, make("label", {}, "Search", search), told),
    make("div", { class: "scroll", tabindex: 0, role: "region", "aria-labelledby": "runs-title" }, make("table", {}, make("thead", {}, make("tr", {}, heads)), body)), make("p", {}, more));
  section.hidden = false;
  draw();
}
