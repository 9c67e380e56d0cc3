// Against what people use today: a benchmark's curves, scores and profile. Joined to plot.js.

const SATURATED = 2.5; // the score whose cell is darkest

function benchmark() {
  const found = data.benchmark;
  const link = document.querySelector('nav a[href="#benchmark"]');
  if (!found) {
    $("benchmark").remove();
    return link?.remove();
  }
  $("benchmark").hidden = false;
  if (link) link.hidden = false;
  paint("method", Object.values(found.methods));
  $("bench-coverage").append(...rich(found.coverage.join(" ")));
  $("bench-cautions").append(...found.cautions.map((sentence) => html("p", { class: "notice" }, rich(sentence))));
  $("bench-verdict").append(...found.grids.map(gridTable), ...found.hindsight.map((said) => html("p", { class: "quiet" }, rich(said))));
  const bench = benchLooks(found);
  const curves = benchCurves(found, bench);
  scoreTable(found, bench, curves);
  duelTable(found, bench);
  benchMore(found);
}

/** Names, classes, what is switched off, and how to point at a line. */
function benchLooks(found) {
  const names = Object.keys(found.methods);
  const off = new Set(names.filter((name) => !found.methods[name].shown));
  const idOf = (method, second) => (second ? `${method} second` : method);
  const classOf = (method, second) => {
    const { dashes, ours, reference } = found.methods[method];
    const look = second ? `second ${dashes}` : dashes; // two seconds in one colour differ as their firsts do
    return `method${names.indexOf(method)} ${look}${ours ? " ours" : ""}${reference ? " reference" : ""}`;
  };
  for (const { lines } of found.workloads) {
    for (const { method, second } of lines) if (second && off.has(method)) off.add(idOf(method, true));
  }
  return { names, off, idOf, classOf, labelOf: (method) => found.methods[method].label };
}

// ---- Curves by workload, and the profile.

function benchCurves(found, bench) {
  const { off, idOf, classOf } = bench;
  const point = (id) => highlight($("benchmark"), id);
  const shown = found.percents.map((value, i) => i).filter((i) => found.percents[i] > 0); // the axis is logarithmic
  const state = { workload: found.workloads.find(({ name }) => found.scored.includes(name)) ?? found.workloads[0] };
  const hosts = [$("bench-chart"), $("bench-profile")];
  const redraw = () => hosts.forEach((host) => redraws.get(host)?.draw(host));
  const format = (value) => (state.workload.error ? percent(value) : measure(value));

  const inputs = choices($("bench-workloads"), "Workload", "radio", found.workloads.map((workload) => (
    { value: workload.name, text: spaced(workload.name), on: workload === state.workload })),
  (name) => show(found.workloads.find((workload) => workload.name === name)));
  const selections = {
    "All": () => off.clear(),
    "Ours and a few": () => benchFew(found, bench),
    "Ours": () => benchFew(found, bench, true),
  };
  $("bench-choices").append(...Object.entries(selections).map(([text, choose]) => {
    const button = html("button", { type: "button" }, text);
    button.addEventListener("click", () => { choose(); legend(); redraw(); });
    return button;
  }));

  function show(workload) {
    state.workload = workload;
    inputs.find(({ value }) => value === workload.name).checked = true;
    about();
    legend();
    numbersOf(workload);
    redraw();
  }

  function about() {
    const { title, measured, reference, level } = state.workload;
    const said = known(level) ? ` The tuned reference is ${reference}: ${format(level)}.`
      : " It has no tuned reference yet, and so no scores.";
    $("bench-about").replaceChildren(html("b", null, sentenceCase(title)), `, judged by the ${measured}.`, said);
  }

  function legend() {
    $("bench-legend").replaceChildren(...state.workload.lines.map((line) => {
      const id = idOf(line.method, line.second);
      const score = line.text || "–";
      const pressed = String(!off.has(id));
      const attributes = { type: "button", "data-line": id, "aria-pressed": pressed, class: classOf(line.method, line.second) };
      const ends = line.unfinished ? ` (${line.unfinished} of ${line.seeds} diverged or raised an error)` : "";
      const texts = each("span", [line.label + ends, format(line.median.at(-1)), score]);
      const button = pointing(html("button", attributes, texts), $("benchmark"), id);
      button.addEventListener("click", () => {
        const on = off.delete(id);
        if (!on) off.add(id);
        button.setAttribute("aria-pressed", String(on));
        say(`${line.label} is ${on ? "shown" : "hidden"}.`);
        redraw();
        point(on ? id : null);
      });
      return html("li", null, button);
    }));
  }

  function drawCurves(host) {
    const { lines: all, start, level, measured, title } = state.workload;
    const visible = all.filter(({ method, second }) => !off.has(idOf(method, second)));
    const pick = (values) => shown.map((i) => values[i]);
    const lines = visible.map((line) => ({
      id: idOf(line.method, line.second), name: line.label, cls: `${classOf(line.method, line.second)} dashes`,
      xs: pick(found.percents), ys: pick(line.median), low: pick(line.low), high: pick(line.high),
      tip(i) {
        const [spent, median, low, high] = [found.percents, line.median, line.low, line.high].map((values) => pick(values)[i]);
        const over = known(level) ? [`${threeDigits(median / level)} times the tuned reference at its end`] : [];
        return [`after ${spent}${NBSP}% of the budget`, `${format(median)}, median of ${count(line.seeds, "run")}`,
          `${format(low)} to ${format(high)}`, ...over];
      },
    })).reverse(); // the best comes last, and lies on top
    lines.sort((a, b) => / ours/.test(a.cls) - / ours/.test(b.cls));
    if (!lines.length) return host.replaceChildren(none("Every method is switched off; click a name to see it."));
    const every = lines.flatMap(({ ys, low }) => [...ys, ...low]).filter((value) => known(value) && value > 0);
    // What makes a network worse than it was at first leaves the picture.
    const most = Math.min(Math.max(...lines.map(({ ys }) => ys[0]).filter(known)), start ?? Infinity);
    lineChart(host, {
      lines, height: host.clientWidth < 500 ? 380 : 500, right: 22, bottom: 36, left: 56, top: 24,
      label: `${sentenceCase(measured)} against the share of the budget: ${title}`,
      x: { log: true, domain: [1, 100], tick: (value) => `${value}${NBSP}%`,
        title: "of the budget, in forward-and-backward passes" },
      y: { log: true, domain: domainOf([...every.filter((value) => value <= most), most, level], true, 0.03), format,
        tick: state.workload.error ? shortPercent : powerOfTen, heading: sentenceCase(measured) },
      onPoint: point,
      before({ x, y, left, wide }, inner) {
        for (const line of lines) {
          const edge = (values) => line.xs.flatMap((value, i) => (known(values[i]) ? [`${x(value)} ${y(values[i])}`] : []));
          const d = `M${[...edge(line.high), ...edge(line.low).reverse()].join("L")}Z`;
          inner.append(svg("path", { class: `band spread ${line.cls}`, d, "data-line": line.id }));
        }
        if (known(level)) inner.append(svg("line", { class: "level", x1: left, x2: wide, y1: y(level), y2: y(level) }));
      },
      after({ root, y, left, high }) {
        if (!known(level)) return;
        const under = y(level) + 18 < high ? 15 : -6; // where there is no room below the line, above it
        root.append(words(left + 6, y(level) + under, `as good as tuned: ${format(level)}`, "start", "halo strong small"));
      },
    });
  }

  function drawProfile(host) {
    const { levels, shares } = found.profile;
    const total = found.scored.length;
    const steps = (values) => values.flatMap((value, i) => (i ? [values[i - 1], value] : [value]));
    const twice = (values) => values.flatMap((value, i) => (i ? [value, value] : [value]));
    const lines = bench.names.filter((name) => shares[name] && !off.has(name)).map((name) => ({
      id: name, name: bench.labelOf(name), cls: `${classOf(name)} dashes`, xs: twice(levels), ys: steps(shares[name]),
      tip: (i) => [`score at most ${threeDigits(twice(levels)[i])}`,
        `on ${Math.round(total * steps(shares[name])[i])} of ${count(total, "workload")}`],
    })).reverse();
    const why = total ? "Every method is switched off." : "There are no scores yet.";
    if (!lines.length) return host.replaceChildren(none(why));
    lineChart(host, {
      lines, height: 330, right: 14, bottom: 36, left: 46, label: "Share of workloads with a score of at most τ",
      x: { log: true, domain: [levels[0], levels.at(-1)], tick: number, title: "τ, a score" },
      y: { domain: [0, 1.02], format: shortPercent, tick: shortPercent, title: "Share of workloads" },
      onPoint: point,
      before({ x, top, high }, inner) {
        inner.append(svg("line", { class: "moment", x1: x(1), x2: x(1), y1: top, y2: high }));
      },
    });
  }

  const workloads = count(found.scored.length, "workload");
  $("bench-profile-note").textContent = `On which share of ${workloads} a method’s score is at most τ: `
    + "further up and to the left is better. Dotted: as good as tuned.";
  about();
  legend();
  numbersOf(state.workload);
  responsive(hosts[0], drawCurves);
  responsive(hosts[1], drawProfile);
  return { show };
}

const threeDigits = (value) => (value < 999.5 ? value.toPrecision(3) : short(value));

const measure = (value) => (known(value) && value >= 0.001 ? threeDigits(value) : number(value));

/** Whether some runs count as the untrained network. */
const marked = ({ unfinished, spoiled }) => Boolean(unfinished || spoiled);

/** All that was measured of one workload, behind its title. */
function numbersOf({ name, lines, error, measured }) {
  const format = error ? percent : measure;
  const share = (text) => text || "–"; // rounded already, as in the documentation
  const when = (time) => (time === "never" ? "never" : (known(time) ? `${Math.round(100 * time)}${NBSP}%` : "–"));
  const rows = lines.map((line) => {
    const [median, low, high] = [line.median, line.low, line.high].map((values) => format(values.at(-1)));
    const runs = [line.seeds, line.unfinished && `${line.unfinished} diverged or raised an error`,
      line.spoiled && `${line.spoiled} worse than untrained`].filter(Boolean).join(", ");
    return html("tr", null, each("td", [line.label, median, `${low} to ${high}`, share(line.text),
      ...Object.values(line.texts).map(share), when(line.time), number(line.seconds), runs]));
  });
  const early = Object.keys(lines[0].texts).map((percents) => `at ${percents} %`);
  const title = `All numbers of ${spaced(name)}`;
  const headings = ["", measured, "least to greatest", "score", ...early, "as good as the reference after", "seconds", "runs"];
  const table = html("table", { class: "numbers whole" }, heads(headings), html("tbody", null, rows));
  const [summary] = $("bench-numbers").children;
  summary.textContent = title;
  $("bench-numbers").replaceChildren(summary, scrolled(title, table));
}

/** Switch off all but ours, the reference and, unless `only` they are asked for, what is shown to begin with. */
function benchFew(found, { names, off }, only = false) {
  off.clear();
  for (const { lines } of found.workloads) {
    for (const { method } of lines.filter((line) => line.second)) off.add(`${method} second`);
  }
  for (const name of names) {
    const { ours, reference, shown } = found.methods[name];
    if (only ? !ours && !reference : !shown) off.add(name);
    else off.delete(`${name} second`);
  }
}

/** Long names may go on in the next line after a dot. */
const breakable = (text) => text.split(/(?<=\.)/).flatMap((part, i) => (i ? [html("wbr"), part] : [part]));
const spaced = (name) => name.replaceAll("_", " ");

// ---- Scores over all workloads; sorted by what is pressed.

function scoreTable(found, { classOf, idOf, labelOf }, { show }) {
  const why = "There are no scores yet: no workload has a tuned reference.";
  if (!found.overall.length) return $("bench-table").append(none(why));
  const at = ({ lines }, method, second = false) => lines.find((line) => line.method === method && line.second === second);
  const scored = found.workloads.filter(({ name }) => found.scored.includes(name));
  const rows = found.overall.map((row) => ({
    ...row, id: row.method, label: labelOf(row.method), cls: classOf(row.method),
    lines: scored.map((workload) => at(workload, row.method)),
  }));
  const again = unique(scored.flatMap(({ lines }) => lines.filter((line) => line.second).map((line) => line.method)));
  const seconds = again.map((method) => ({
    id: idOf(method, true), label: `${labelOf(method)}, second`, cls: classOf(method, true), second: true,
    lines: scored.map((workload) => at(workload, method, true)),
  }));
  const whole = ([key, text]) => ({ key, text, value: (row) => row[key], shown: (row) => row.texts[key] });
  const columns = [
    ...[["mean", "geometric mean"], ["again", "with second tries"]].map(whole),
    ...found.early.map((percent) => ({
      key: `${percent}`, text: `at ${percent}${NBSP}%`, value: (row) => row.early?.[percent], shown: (row) => row.texts[percent],
    })),
    whole(["worst", "worst"]),
    { key: "misses", text: "misses", value: (row) => row.misses?.length },
    ...scored.map((workload, i) => ({
      key: workload.name, text: spaced(workload.name), workload, value: (row) => row.lines[i]?.ratio, shown: (row) => row.lines[i].text,
    })),
  ];
  const body = html("tbody");
  const heads = columns.map((column) => {
    const button = html("button", { type: "button" }, column.text);
    button.addEventListener("click", () => { sort(column); if (column.workload) show(column.workload); });
    return html("th", { scope: "col" }, button);
  });

  function cell(row, column) {
    const value = column.value(row);
    if (column.key === "misses") {
      return html("td", null, row.second ? "" : String(value));
    }
    if (!known(value)) return html("td", null, row.second ? "" : "–");
    const sign = column.workload && marked(row.lines[scored.indexOf(column.workload)]) ? "†" : "";
    return html("td", { style: tint(value, SATURATED) }, `${column.shown(row)}${sign}`);
  }

  function sort(column) {
    const order = (row) => column.value(row) ?? Infinity;
    const fewer = (row) => (column.workload || row.second ? 0 : -row.workloads); // a mean over fewer workloads is another
    const sorted = [...rows, ...seconds].sort((a, b) => fewer(a) - fewer(b) || order(a) - order(b));
    const placed = column.workload ? sorted : [...sorted.filter((row) => !row.second), ...seconds];
    heads.forEach((head, i) => head.setAttribute("aria-sort", columns[i] === column ? "ascending" : "none"));
    body.replaceChildren(...placed.map((row) => {
      const name = html("th", { scope: "row", class: row.cls }, html("span", null, breakable(row.label)));
      const cells = columns.map((column) => cell(row, column));
      return pointing(html("tr", { "data-line": row.id, class: row.cls }, name, cells), $("benchmark"), row.id);
    }));
  }

  sort(columns[0]);
  const title = `Scores over ${count(scored.length, "workload")}; 1 is as good as tuned, less is better`;
  $("bench-table").append(scrolled(title,
    html("table", { class: "numbers scores" }, html("caption", null, html("span", null, title)),
      html("thead", null, html("tr", null, html("th", null), heads)), body)));
  const notes = ["A miss is a workload on which the median never comes within 10 % of the reference.",
    `At ${found.early.map((percent) => `${percent} %`).join(" and ")} are geometric means after so much of the budget.`];
  if (scored.some(({ lines }) => lines.some(marked))) {
    notes.push("† Some runs diverged, raised an error or made the network worse, and count as the untrained network.");
  }
  if (seconds.length) {
    notes.push("Second configurations were trained only where the first fails; in the mean with second tries they count "
      + "where they are better than the first.");
  }
  const how = " Press a heading to sort by it; that of a workload shows its curves, too.";
  $("bench-table-note").append(notes.join(" "), html("span", { class: "screen-only" }, how));
}

// ---- Ours against the others, and the small print.

function duelTable(found, { names, labelOf, classOf }) {
  const ours = names.filter((name) => found.duels.some((duel) => duel.ours === name));
  const others = names.filter((name) => found.duels.some((duel) => duel.other === name));
  if (!ours.length) return $("bench-duels").append(none("Ours and others have no scores on the same workloads yet."));
  const cell = (duel) => {
    if (!duel) return html("td", null, "–");
    const odds = (1 + duel.ahead) / (1 + duel.of - duel.ahead - duel.level);
    const level = duel.level ? `, ${duel.level} level` : "";
    return html("td", { style: tint(1 / odds) }, `${duel.ahead} of ${duel.of}`,
      html("small", null, ` (${duel.surely})${level}`));
  };
  const rows = others.map((other) => {
    const name = html("th", { scope: "row", class: classOf(other) }, html("span", null, labelOf(other)));
    const cells = ours.map((one) => cell(found.duels.find((duel) => duel.ours === one && duel.other === other)));
    return pointing(html("tr", { "data-line": other }, name, cells), $("benchmark"), other);
  });
  const title = "On how many workloads ours are ahead";
  const headings = ["of", ...ours.map((name) => breakable(labelOf(name)))];
  const note = "By medians; level are scores within 1 % of each other. In brackets: on how many of those where ours is "
    + "ahead even its worst seed is better than the other’s best.";
  $("bench-duels").append(html("h3", null, title),
    scrolled(title, html("table", { class: "numbers scores" }, heads(headings), html("tbody", null, rows))),
    html("p", { class: "caption" }, note));
}

const sentenceList = (sentences) => html("ul", { class: "findings" },
  sentences.map((sentence) => html("li", null, rich(pretty(sentence)))));

function benchMore({ troubles, unfinished, configurations, origins, commands }) {
  const fold = (title, ...content) => html("details", null, html("summary", null, title), ...content);
  const host = $("bench-more");
  // A sentence may be about several runs.
  if (unfinished) host.append(fold(`What did not finish: ${count(unfinished, "run")}`, sentenceList(troubles)));
  host.append(fold(configurations.title, gridTable(configurations)));
  if (origins.length) host.append(html("p", { class: "quiet" }, origins.join(" ")));
  const typed = commands.map((command) => html("li", null, html("code", null, command)));
  if (typed.length) host.append(fold("The commands that made them", html("ul", { class: "findings" }, typed)));
}
