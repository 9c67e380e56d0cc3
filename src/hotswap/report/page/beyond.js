// Beyond the paper: variants of hot swapping beside their rivals, at equal cost. Joined to plot.js and page.js.

const RIVAL_LOOKS = { paper: "pick0 strongest", adadelta: "pick1 dashed dashes", "sgd tenth": "search thin" };

function beyond() {
  const found = data.beyond;
  const link = document.querySelector('nav a[href="#beyond"]');
  if (!found) {
    $("beyond").remove();
    return link.remove();
  }
  $("beyond").hidden = false;
  link.hidden = false;
  $("beyond-verdict").append(...rich(pretty(found.verdict)));
  $("beyond-verdict").classList.toggle("won", found.won);
  $("beyond-method").textContent = found.method;
  beyondCharts(found);
  beyondRatios(found);
  $("beyond-tables").append(...found.grids.map(gridTable));
}

function beyondCharts(found) {
  const state = { group: found.groups[0]?.name, size: String(found.sizes[0]) };
  const host = $("beyond-chart");
  const legend = $("beyond-legend");
  const choice = (heading, key, entries) => choices($("beyond-controls"), heading, "radio",
    entries.map(([value, text]) => ({ value, text, on: value === state[key] })), (value) => { state[key] = value; draw(host); });
  choice("Variants", "group", found.groups.map(({ name, title }) => [name, title]));
  choice("At batch size", "size", found.sizes.map((size) => [String(size), String(size)]));
  const most = 1.15 * found.moments.at(-1);

  function lineOf(one, cls) {
    const curve = one.curves[state.size];
    if (!curve) return null;
    const shown = curve.cost.map((cost, i) => i).filter((i) => known(curve.cost[i]) && curve.cost[i] <= most);
    return {
      id: one.name, name: one.label, cls, xs: shown.map((i) => curve.cost[i]), ys: shown.map((i) => curve.nll[i]),
      low: curve.low && shown.map((i) => curve.low[i]), high: curve.high && shown.map((i) => curve.high[i]),
    };
  }

  function draw(chart) {
    const rivals = found.rivals.filter(({ name }) => RIVAL_LOOKS[name]).map((one) => lineOf(one, RIVAL_LOOKS[one.name]));
    const variants = found.variants.filter(({ group }) => group === state.group)
      .map((one) => lineOf(one, `${classOf(one.name)} dashes`));
    const lines = [...rivals, ...variants].filter((line) => line && line.ys.some((value) => value > 0));
    legend.replaceChildren(...lines.map((line) => {
      const button = html("button", { type: "button", class: line.cls, "data-line": line.id }, line.name);
      return html("li", null, pointing(button, $("beyond"), line.id));
    }));
    if (!lines.length) return chart.replaceChildren(none("None of these has a finite objective at this batch size."));
    const band = lines.find((line) => line.low);
    lineChart(chart, {
      lines, height: 420, right: 20, bottom: 36, label: `Training objective against cost, batch ${state.size}`,
      x: { log: true, domain: [1, most], tick: number, title: "cost in plain epochs", name: "cost" },
      y: { log: true, format: number, tick: powerOfTen, title: "Training objective" },
      onPoint: (id) => highlight($("beyond"), id),
      before({ x, y, top, high }, inner) {
        if (band) {
          const edge = (values) => band.xs.map((cost, i) => `${x(cost)} ${y(values[i])}`);
          inner.append(svg("path", { class: "band search", d: `M${[...edge(band.high), ...edge(band.low).reverse()].join("L")}Z` }));
        }
        for (const cost of found.moments) {
          inner.append(svg("line", { class: "moment", x1: x(cost), x2: x(cost), y1: top, y2: high }));
        }
      },
    });
  }
  responsive(host, draw);
}

function beyondRatios(found) {
  const rows = (ones) => ones.map((one) => {
    const cells = found.moments.flatMap((cost) => found.sizes.map((size) => {
      const { nll, error, ratio, diverged, first } = one.at[cost][size];
      const told = `${one.label}, batch ${size}, cost ${cost}: objective ${number(nll)}, test error ${percent(error)}`;
      const text = known(ratio) ? short(ratio) : (diverged ? "∞" : "–");
      return html("td", { style: tint(diverged ? 10 : ratio), class: first ? "first" : null, title: told }, text);
    }));
    return html("tr", null, html("th", { scope: "row" }, one.label), cells);
  });
  const wide = 1 + found.moments.length * found.sizes.length;
  const body = [rows(found.rivals.filter(({ name }) => name !== "paper"))];
  for (const { name, title } of found.groups) {
    body.push(html("tr", { class: "group" }, html("th", { colspan: wide, scope: "colgroup" }, title)),
      rows(found.variants.filter((variant) => variant.group === name)));
  }
  const head = html("thead", null,
    html("tr", null, html("th", null), found.moments.map((cost) =>
      html("th", { colspan: found.sizes.length, scope: "colgroup" }, `at the cost of ${cost} plain epochs`))),
    html("tr", null, html("th", null, "batch size"), found.moments.flatMap(() =>
      found.sizes.map((size) => html("th", { scope: "col" }, String(size))))));
  const title = "Objective over that of the paper’s algorithm, at equal cost";
  $("beyond-ratios").append(scrolled(title,
    html("table", { class: "numbers ratios" }, html("caption", null, html("span", null, title)), head, html("tbody", null, body.flat()))));
}
