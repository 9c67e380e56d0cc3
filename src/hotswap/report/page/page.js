// The page, section by section. Joined to plot.js in one module.

// ---- The head of the page.

const MANY = 8; // algorithms that a sentence can name

function header() {
  const { origin, settings, tuning } = data;
  document.title = `Hot swapping: the study “${data.name}”`;
  const names = algorithms.filter((name) => settings.some((s) => s.algorithm === name)).map(nameOf);
  const whose = names.length > MANY ? count(names.length, "algorithm") : list(names);
  const runs = `: ${count(origin.runs, "training run")} of ${whose}.`;
  const what = origin.runs ? runs : ", which has no training runs yet.";
  const on = data.datasets.length ? ` on ${list(data.datasets)}` : "";
  $("lead").textContent = "Bache, DeCoste and Smyth (2015) let a bandit, DUCB, choose the learning rate of every "
    + `minibatch and a line search protect the step. This page shows what came of the study “${data.name}”${on}${what}`;
  const card = (big, ...small) => $("headlines").append(
    html("div", { class: "headline" }, html("b", null, big), html("span", null, small.join(""))));
  if (settings.length) {
    const seeds = Math.max(0, ...settings.map((s) => s.at[last].seeds.length));
    card(origin.runs.toLocaleString("en"), `training runs: ${count(settings.length, "setting")}, `,
      `up to ${count(seeds, "seed")} each, ${count(last, "epoch")}`);
  }
  for (const [name, measure] of [["test_error", "error"], ["train_nll", "nll"]].filter(([name]) => tuning[name])) {
    const { caught_up: k, one_run: one, expected, bayesian } = tuning[name];
    const [tuned, reference] = [tuning[name].tuned, tuning[name].reference].map(nameOf);
    const { title, format } = MEASURES[measure];
    const goal = `the ${title.toLowerCase()} of one ${reference} run, ${format(one)}`;
    if (k === null) {
      card("never", `does a random search over ${tuned}’s settings match ${goal}: `,
        `the best of all ${expected.length} has ${format(expected.at(-1))}`);
    } else {
      const guided = bayesian ? `; a Bayesian search needs ${bayesian.caught_up}` : "";
      card(k.toLocaleString("en"), `training${k === 1 ? "" : "s"} of ${tuned} with random settings, on average, match ${goal}${guided}`);
    }
  }
  $("provenance").textContent = provenance();
  if (data.missing.length) {
    $("missing").append("Not everything is here:", html("ul", null, each("li", data.missing.map(rich))));
    $("missing").hidden = false;
  }
}

function provenance() {
  const { origin } = data;
  if (!origin.units) return "Nobody can say what made these numbers: the study has no provenance.";
  const days = unique([origin.dates[0], origin.dates.at(-1)].filter(Boolean)).join(" to ");
  const how = [...origin.precisions, ...origin.versions].join("; ");
  return `${count(origin.runs, "run")} in ${count(origin.units, "unit")}, ${origin.minutes.toFixed(1)} minutes of training `
    + `and evaluation on ${list(origin.devices)} (${how})${days && `, ${days}`}.`;
}

// ---- Figure 1.

const SHAPES = {
  triangle: [[0, -6.5], [6, 4.5], [-6, 4.5]],
  square: [[-5.4, -5.4], [5.4, -5.4], [5.4, 5.4], [-5.4, 5.4]],
  diamond: [[0, -7.4], [6.4, 0], [0, 7.4], [-6.4, 0]],
};
const SIGNS = { circle: "●", triangle: "▲", square: "■", diamond: "◆" };
const RADIUS = 6.2; // of the circle beside which the shapes look equally large

/** Sizes are in points, as the figures in print have them. */
const radiusOf = (algorithm) => 0.7 + lookOf(algorithm).size * 0.7333;

function mark(algorithm, size = 1) {
  const [{ marker }, r] = [lookOf(algorithm), radiusOf(algorithm) * size];
  if (!SHAPES[marker]) return svg("circle", { class: "mark", r });
  const corners = SHAPES[marker].map((corner) => corner.map((at) => (at * r) / RADIUS).join(" "));
  return svg("path", { class: "mark", d: `M${corners.join("L")}Z` });
}

const LETTERS = ["A", "B", "C", "D"];

/** A few settings learn nothing; on their scale all others would lie on one another. Where to break the axis, or 0. */
function breakOf(errors) {
  const sorted = [...errors].sort((a, b) => a - b);
  const most = sorted[Math.floor(0.6 * sorted.length)];
  const unit = 10 ** Math.floor(Math.log10(most || 1));
  const at = Number((Math.ceil(most / unit) * unit).toPrecision(3));
  return most && sorted.at(-1) > 3 * at ? at : 0;
}

function figure1() {
  const { settings, epochs } = data;
  if (!settings.length) {
    $("controls").hidden = true;
    $("curves").hidden = true;
    const why = whyMissing("measurements", "There are no measurements of training runs: nothing to draw.");
    return $("scatter").append(none(why));
  }
  const present = algorithms.filter((name) => settings.some((s) => s.algorithm === name));
  const batches = unique(settings.map((s) => s.batch)).sort((a, b) => a - b);
  const moments = settings.flatMap((s) => epochs.map((epoch) => s.at[epoch]));
  const errors = moments.flatMap((m) => m.error).filter(known);
  const cut = breakOf(moments.map((m) => m.error[0]).filter(known));
  const state = { epoch: last, algorithms: new Set(present), batches: new Set(batches) };
  const best = (algorithm) => settings.filter((s) => s.algorithm === algorithm && drawable(s))
    .sort((a, b) => a.at[last].error[0] - b.at[last].error[0])[0];
  const large = settings.filter((s) => !lookOf(s.algorithm).many).length;
  const upper = settings.filter((s) => lookOf(s.algorithm).top).length;
  const named = (algorithm) => !lookOf(algorithm).many
    && (large <= 25 || (lookOf(algorithm).top && upper <= 40)); // room for so many
  const free = [0, 1, 2, 3]; // a pick keeps its letter for as long as it is picked
  let picks = [];
  let dots = [];
  let place = null;
  let ring = null;
  let picked = null;

  function drawable(setting) {
    return known(setting.at[state.epoch].nll[0]) && known(setting.at[state.epoch].error[0]);
  }
  const wanted = (s) => state.algorithms.has(s.algorithm) && state.batches.has(s.batch);

  function controls() {
    const group = (legend, type, entries, change) =>
      choices($("controls"), legend, type, entries, (value, on) => { change(value, on); update(); });
    const toggle = (set) => (value, on) => (on ? set.add(value) : set.delete(value));
    const icon = (name) => svg("svg", { viewBox: "-8 -8 16 16", class: classOf(name), "aria-hidden": "true" }, mark(name));
    group("Epoch", "radio", epochs.map((value) => ({ value, on: value === state.epoch })), (epoch) => {
      state.epoch = epoch;
      curves();
    });
    group("Algorithm", "checkbox", present.map((value) => ({ value, text: nameOf(value), icon: icon(value) })),
      toggle(state.algorithms));
    group("Batch size", "checkbox", batches.map((value) => ({ value })), toggle(state.batches));
  }

  function draw() {
    const host = $("scatter");
    const narrow = host.clientWidth < 500;
    const height = narrow ? 460 : 610;
    const split = cut ? Math.round(height * 0.25) : 24; // the upper part gets a quarter
    const y = { log: true, domain: domainOf(errors, true, 0.02), tick: shortPercent, heading: "Test error" };
    const upper = { ...y, domain: [cut, y.domain[1]] };
    if (cut) y.domain = [domainOf(errors.filter((error) => error <= cut), true, 0.06)[0], cut];
    place = frame(host, {
      height, y, top: split, right: 14, bottom: 42, left: 48,
      x: { log: true, domain: domainOf(moments.flatMap((m) => m.nll), true, 0.03), tick: powerOfTen,
        title: "Training objective (negative log-likelihood)" },
      label: "All settings: training objective across, test error up. Arrow keys go from mark to mark, "
        + "Page Up and Page Down through the list, Enter shows curves, Escape clears.",
    });
    const { root, left, wide } = place;
    if (cut) {
      const [below, above] = [place.y, scale(upper, [split - 10, 24])];
      place.y = (value) => (value > cut ? above(value) : below(value));
      root.prepend(svg("rect", { class: "squeezed", x: left, width: wide - left, y: 20, height: split - 25, rx: 3 }));
      rules(place, upper, above, split - 24);
      root.append(words(left + 8, split - 12, `axis squeezed above ${shortPercent(cut)}`, "start", "small"));
    }
    const depth = ({ setting }) => -algorithms.indexOf(setting.algorithm); // what lies on top comes first there
    const sorted = settings.map((setting, i) => ({ setting, i })).sort((a, b) => depth(a) - depth(b));
    dots = sorted.map(({ setting, i }) => {
      const { algorithm, batch } = setting;
      const bar = svg("path", { class: "bar" });
      const node = svg("g", { class: `dot ${classOf(algorithm)}`, "data-i": i }, bar, mark(algorithm, narrow ? 0.85 : 1));
      const name = named(algorithm) ? node.appendChild(words(0, 0, String(batch), "middle", "name halo")) : null;
      root.append(node);
      return { setting, i, node, bar, name, r: radiusOf(algorithm) };
    });
    picked = root.appendChild(svg("g"));
    ring = root.appendChild(svg("circle", { class: "ring off", r: 10 }));
    explore(root, { pick: nearest, step: neighbour, show: point, choose: (dot) => choose(dot.setting) });
    update();
  }

  function update() {
    let [shown, lost, away] = [0, 0, 0];
    for (const dot of dots) {
      const moment = dot.setting.at[state.epoch];
      const asked = wanted(dot.setting);
      dot.on = asked && drawable(dot.setting);
      dot.node.classList.toggle("off", !dot.on);
      shown += dot.on;
      const there = moment.seeds.length > 0;
      lost += asked && there && !dot.on;
      away += asked && !there;
      if (!dot.on) continue;
      const [nll, error] = [moment.nll, moment.error];
      dot.x = place.x(nll[0]);
      dot.y = place.y(error[0]);
      dot.node.style.transform = `translate(${dot.x}px, ${dot.y}px)`;
      // A seed that has no number reaches to the edge.
      const [x1, x2] = [place.x(nll[1] ?? nll[0]) - dot.x, (known(nll[2]) ? place.x(nll[2]) : place.wide) - dot.x];
      const [y1, y2] = [place.y(error[1] ?? error[0]) - dot.y, place.y(error[2] ?? error[0]) - dot.y];
      dot.bar.setAttribute("d", `M${x1} 0H${x2}M0 ${y1}V${y2}`);
    }
    rings();
    const notes = [`${shown} of ${count(settings.length, "setting")} shown, at epoch ${state.epoch}.`];
    if (shown === 0) notes.push("Nothing is left to draw: switch an algorithm and a batch size on.");
    const whose = lost === 1 ? "its" : "their";
    if (lost) notes.push(`${lost} not drawn: ${whose} training objective or test error is not a finite number.`);
    if (away) notes.push(`${away} not drawn: no run of ${away === 1 ? "it" : "theirs"} has reached this epoch.`);
    const zeros = dots.filter((dot) => dot.on && dot.setting.at[state.epoch].nll[0] === 0).length;
    if (zeros) notes.push(`${zeros} with an objective of 0 at the left edge.`);
    $("shown").textContent = notes.join(" ");
  }

  /** Each name goes above, below, beside or askew of its mark: where it covers least of the other names and marks. */
  function placeNames(named) {
    const taken = named.map(({ x, y }) => [x - 7, y - 7, x + 7, y + 7]);
    const chosen = dots.filter((dot) => dot.on && picks.some(({ setting }) => setting === dot.setting));
    const names = chosen.map((dot) => letterOf(dot).box);
    taken.push(...names);
    const overlap = (a, b) => Math.max(0, Math.min(a[2], b[2]) - Math.max(a[0], b[0]))
      * Math.max(0, Math.min(a[3], b[3]) - Math.max(a[1], b[1]));
    for (const { x, y, name, setting } of named) {
      const half = 4 * name.textContent.length;
      const sides = [[0, -11], [0, 19], [-half - 11, 4], [half + 11, 4]]; // the middle of the text's base line
      if (!lookOf(setting.algorithm).top) [sides[0], sides[1]] = [sides[1], sides[0]];
      sides.push(...[-1, 1].flatMap((side) => [[side * (half + 7), -8], [side * (half + 7), 16], [side * (half + 20), 4]]));
      const boxes = sides.map(([dx, dy]) => [x + dx - half - 2, y + dy - 11, x + dx + half + 2, y + dy + 2]);
      const costs = boxes.map((box) => taken.reduce((sum, other) => sum + overlap(box, other), 0));
      const best = costs.indexOf(Math.min(...costs));
      const free = names.every((other) => overlap(boxes[best], other) === 0);
      name.classList.toggle("off", !free); // in a crowd the tooltip tells it
      if (free) names.push(boxes[best]), taken.push(boxes[best]);
      name.setAttribute("x", sides[best][0]);
      name.setAttribute("y", sides[best][1]);
    }
  }

  /** Where the letter of a mark that was picked goes: beside it, or above it where another mark is there. */
  function letterOf({ x, y }) {
    const near = (dot) => dot.on && dot.name && dot.x < x && x - dot.x < 34 && Math.abs(dot.y - y) < 14;
    if (dots.some(near)) return { at: [0, -15, "middle"], box: [x - 7, y - 28, x + 7, y - 12] };
    return { at: [-14, 5, "end"], box: [x - 26, y - 8, x - 11, y + 8] };
  }

  function rings() {
    placeNames(dots.filter((dot) => dot.on && dot.name));
    picked.replaceChildren(...picks.flatMap(({ setting, slot }) => {
      const dot = dots.find((candidate) => candidate.setting === setting);
      if (!dot.on) return [];
      const [dx, dy, anchor] = letterOf(dot).at;
      const letter = words(dx, dy, LETTERS[slot], anchor, "halo");
      const node = svg("g", { class: `picked pick${slot}` }, svg("circle", { r: 10 }), letter);
      node.style.transform = dot.node.style.transform;
      return [node];
    }));
  }

  function nearest(px, py) {
    let [found, near] = [null, 18];
    for (const dot of dots) {
      const far = dot.on ? Math.hypot(dot.x - px, dot.y - py) - dot.r : Infinity;
      if (far <= near) [found, near] = [dot, far];
    }
    return found;
  }

  function neighbour(from, key) {
    const on = dots.filter((dot) => dot.on);
    if (!from?.on) return on.at(-1) ?? null;
    if (key.startsWith("Page")) return on.at((on.indexOf(from) + (key === "PageUp" ? -1 : 1)) % on.length);
    const across = /Left|Right/.test(key);
    const sign = /Left|Up/.test(key) ? -1 : 1;
    let [found, least] = [from, Infinity];
    for (const dot of on) {
      const [dx, dy] = [dot.x - from.x, dot.y - from.y];
      const [ahead, aside] = across ? [dx * sign, Math.abs(dy)] : [dy * sign, Math.abs(dx)];
      const cost = ahead + 3 * aside; // rather straight on than near
      if (ahead > 0.01 && cost < least) [found, least] = [dot, cost];
    }
    return found;
  }

  function point(dot) {
    ring.classList.toggle("off", !dot);
    if (!dot) return null;
    ring.style.transform = dot.node.style.transform;
    const { setting } = dot;
    const { nll, error, seeds } = setting.at[state.epoch];
    const row = (name, a, b, cls) => html("tr", { class: cls }, each("td", [name, number(a), percent(b)]));
    const table = html("table", null, html("tr", null, each("th", ["", "objective", "test error"])),
      row("median", nll[0], error[0], "median"), row("lowest", nll[1], error[1]), row("highest", nll[2], error[2]),
      seeds.map((seed) => row(`seed ${seed.seed}`, seed.nll, seed.error)));
    const about = `${count(seeds.length, "seed")}, epoch ${state.epoch}`;
    return {
      x: dot.x,
      y: dot.y,
      content: [html("b", null, setting.label), html("span", { class: "quiet" }, about), table],
      text: `${setting.label}. ${about}. Training objective ${number(nll[0])}, test error ${percent(error[0])}.`,
    };
  }

  function choose(setting) {
    const at = picks.findIndex((pick) => pick.setting === setting);
    if (at >= 0) free.unshift(picks.splice(at, 1)[0].slot);
    else {
      if (!free.length) free.push(picks.shift().slot); // the oldest makes room
      free.sort();
      picks.push({ setting, slot: free.shift() });
    }
    say(at >= 0 ? `${setting.label}: curves removed.` : `${setting.label}: curves shown, ${picks.length} of 4.`);
    rings();
    curves();
  }

  function clear() {
    while (picks.length) free.push(picks.pop().slot);
    say("No curves are shown.");
    rings();
    curves();
  }

  function curves() {
    const panel = $("curves");
    const shown = [...picks].sort((a, b) => a.slot - b.slot);
    if (!shown.length) {
      const how = "No setting is picked. Click a mark to see how its training went; up to four can be compared.";
      return panel.replaceChildren(html("h3", null, "Curves"), html("p", { class: "quiet" }, how));
    }
    const button = html("button", { type: "button", id: "clear" }, "Clear");
    button.addEventListener("click", clear);
    const chips = shown.map(({ setting, slot }) => {
      const away = html("button", { type: "button", "aria-label": `Remove ${setting.label}` }, "×");
      away.addEventListener("click", () => choose(setting));
      return html("li", { class: `pick${slot}` }, each("b", [LETTERS[slot]]), each("span", [setting.label]), away);
    });
    const kinds = ["nll", "error", "rate", "trials"]
      .filter((kind) => shown.some(({ setting }) => setting.curve[kind]?.some(known)));
    const hosts = html("div", { class: "mini" });
    panel.replaceChildren(
      html("div", { class: "head" }, html("h3", null, "Curves, the median of the seeds"), button),
      html("ul", { class: "picks" }, chips), hosts);
    for (const kind of kinds) {
      const { title, format, tick } = MEASURES[kind];
      const lines = shown.filter(({ setting }) => setting.curve[kind]).map(({ setting, slot }) => ({
        id: String(slot), name: setting.label, cls: `pick${slot}`, end: LETTERS[slot],
        xs: setting.curve.epoch, ys: setting.curve[kind],
      }));
      const having = unique(shown.filter(({ setting }) => setting.curve[kind]).map(({ setting }) => setting.algorithm));
      const only = kind === "rate" || kind === "trials" ? `, ${list(having.map(nameOf))}` : "";
      responsive(plotIn(hosts), (host) => lineChart(host, {
        lines, height: kinds.length > 2 ? 124 : 240, right: 26, left: 46, top: 24, label: `${title} against epochs`,
        x: { log: true, tick: number, title: "epoch" },
        y: { log: kind !== "trials", format, tick, title, heading: title + only },
        onPoint: (id) => highlight(hosts, id),
        before: ({ x, top, high }, inner) => {
          const at = x(state.epoch);
          inner.append(svg("line", { class: "moment", x1: at, x2: at, y1: top, y2: high }));
        },
      }));
    }
    if (!kinds.length) hosts.append(none("None of these has a finite number at any epoch."));
  }

  controls();
  present.map(best).filter(Boolean).slice(0, 4).forEach((setting) => picks.push({ setting, slot: free.shift() }));
  responsive($("scatter"), draw);
  curves();
  $("runs").addEventListener("keydown", (event) => { if (event.key === "Escape") clear(); });
  const signs = present.map((name) => `${lookOf(name).many ? "•" : SIGNS[lookOf(name).marker]} ${nameOf(name)}`);
  const key = `${signs.join("   ")}   The numbers beside marks are batch sizes.`;
  $("scatter").before(html("p", { class: "quiet paper-only" }, key));
}

// ---- The price of tuning.

function tuningCharts() {
  const kinds = [["train_nll", "nll"], ["test_error", "error"]].filter(([name]) => data.tuning[name]);
  const host = $("tuning-charts");
  const why = "This needs finished settings of an algorithm whose rate is tuned, such as SGD, and of one that chooses its "
    + "rate itself, such as DUCB; they are not here.";
  if (!kinds.length) return host.append(none(why));
  for (const [name, measure] of kinds) {
    const curve = data.tuning[name];
    const { title, format } = MEASURES[measure];
    const figure = figureIn(host, `Best ${title.toLowerCase()} of k trainings`);
    const every = [curve, curve.bayesian].filter(Boolean).flatMap(({ expected, low, high }) => [...expected, ...low, ...high])
      .concat(Object.values(curve.levels)).filter(known);
    // The first few trainings have so much more error that the rest would be flat; they leave at the top.
    const most = measure === "error" && known(curve.one_run) ? 1.5 * curve.one_run : Infinity;
    const cut = Math.min(Math.max(...every), most);
    const domain = domainOf([...every.filter((value) => value <= cut), cut], true, 0.03);
    responsive(plotIn(figure), (chart) => tuningChart(chart, curve, MEASURES[measure], domain));
    figure.append(tuningSentence(curve, format, cut));
    if (curve.until_by_batch) figure.append(tuningTable(curve));
  }
}

function tuningChart(host, curve, { title, format, tick }, domain) {
  const { expected, levels, caught_up: k, caught_up_by_batch: reached, one_run: one, bayesian } = curve;
  const [tuned, reference] = [curve.tuned, curve.reference].map(nameOf);
  const colours = classOf(curve.reference);
  const trials = expected.map((_, i) => i + 1);
  const end = trials.length;
  const sizes = Object.keys(levels).filter((size) => known(levels[size])).sort((a, b) => a - b);
  const guided = (size) => (bayesian ? `, of a Bayesian search of ${bayesian.caught_up_by_batch[size]}` : "");
  const match = (size) => (reached[size] === null ? "no number of trainings gets there"
    : `matched by the best of ${count(reached[size], "training")}${guided(size)}`);
  const searchLine = (id, name, found) => ({
    id, name: `${tuned}, ${name}`, cls: id, found, xs: trials, ys: found.expected,
    tip: (i) => [`Best of ${count(i + 1, "training")}: ${format(found.expected[i])}`,
      `eight of ten: ${format(found.low[i])} to ${format(found.high[i])}`],
  });
  const searches = [searchLine("search", "random search", curve)];
  if (bayesian) searches.push(searchLine("bayesian", "Bayesian search", bayesian));
  const flat = sizes.map((size) => ({
    id: size, name: `${reference}, batch ${size}`, cls: `${colours} flat${levels[size] === one ? " main" : ""}`,
    end: `${reference} ${size}`, xs: [1, end], ys: [levels[size], levels[size]],
    tip: () => [`${title}: ${format(levels[size])}`, match(size)],
  }));
  lineChart(host, {
    lines: [...flat, ...searches], height: 340, right: Math.max(84, roomFor(flat)), bottom: 36,
    label: `${title} of the best of k trainings of ${tuned}, against ${reference}`,
    x: { log: true, domain: [1, Math.max(2, end)], tick: number, title: `k, trainings of ${tuned}` },
    y: { log: true, domain, format, tick, title },
    before({ x, y }, inner) {
      const edge = (values) => trials.map((trial, i) => `${x(trial)} ${y(values[i])}`);
      for (const { id, found: { low, high } } of searches) {
        const cls = id === "search" ? classOf(curve.tuned) : id;
        inner.append(svg("path", { class: `band ${cls}`, d: `M${[...edge(high), ...edge(low).reverse()].join("L")}Z` }));
      }
    },
    after({ root, x, y, high: floor }) {
      // Each name beside its curve: above the one that lies higher later on, below the other.
      const third = Math.min(3, end), later = Math.min(24, end);
      root.append(words(x(third) + 8, y(expected[third - 1]) - 4, searches[0].name, "start", "halo"));
      if (bayesian) {
        root.append(words(x(later) - 8, y(bayesian.expected[later - 1]) + 14, "Bayesian search", "end", "halo bayesian"));
      }
      for (const { id, found } of searches) {
        const cls = id === "search" ? colours : id;
        for (const size of sizes.filter((size) => found.caught_up_by_batch[size] !== null)) {
          const [cx, cy] = [x(found.caught_up_by_batch[size]), y(levels[size])];
          root.append(svg("circle", { class: `meet ${cls}`, r: 3.5, cx, cy }));
        }
      }
      if (k === null) return;
      root.append(
        svg("line", { class: "moment", x1: x(k), x2: x(k), y1: y(one), y2: floor }),
        svg("circle", { class: `meet main ${colours}`, r: 5, cx: x(k), cy: y(one) }),
        words(x(k), y(one) - 12, `k = ${k}`, "middle", "halo strong"));
    },
  });
}

function tuningSentence(curve, format, cut) {
  const { expected, caught_up: k, caught_up_by_batch: reached, one_run: one, bayesian } = curve;
  const [tuned, reference] = [curve.tuned, curve.reference].map(nameOf);
  const strong = (text) => html("b", null, text);
  const all = expected.length;
  const rest = k === null
    ? [strong("never"), ` matches it: the best of all ${all} settings of ${tuned} has ${format(expected.at(-1))}.`]
    : ["needs ", strong(count(k, "training")), ` of ${tuned}, of ${all} settings, to match it on average`,
      ...(bayesian ? [", a Bayesian search ", strong(`${bayesian.caught_up}`)] : []), "."];
  const sizes = Object.keys(reached).sort((a, b) => a - b).map((size) => `${size}: ${reached[size] ?? "never"}`);
  const more = expected[0] > cut ? ` A single training has ${format(expected[0])} on average, above the chart.` : "";
  return html("p", { class: "caption" }, `One ${reference} run gets `, strong(format(one)),
    " (the median over batch sizes). A random search ", rest, ` By batch size of ${reference}: ${sizes.join(", ")}.${more}`);
}

/** Until half of all searches match the reference, and until one and nine of ten do. */
function tuningTable({ until_by_batch: random, bayesian, reference }) {
  const sizes = Object.keys(random).sort((a, b) => a - b);
  const cell = (found) => (found === null ? "never" : `${found.median} (${found.low} to ${found.high})`);
  const ways = [["random search", random], ...(bayesian ? [["Bayesian search", bayesian.until_by_batch]] : [])];
  const rows = sizes.map((size) => html("tr", null, each("td", [size, ...ways.map(([, until]) => cell(until[size]))])));
  return html("table", { class: "numbers until" },
    html("caption", null, "Trainings until half of the searches match it; in brackets, eight of ten searches"),
    heads([`${nameOf(reference)}, batch`, ...ways.map(([name]) => name)]), html("tbody", null, rows));
}

// ---- What the bandit chose.

const HEAT_FLOOR = 0.001; // below this a share counts as next to none
const LEVELS = 24;
/** 0 … 1: nearly logarithmic, so that rare rates stay visible. */
const heat = (share) => Math.log1p(Math.max(0, share) / HEAT_FLOOR) / Math.log1p(1 / HEAT_FLOOR);
const ofColour = (t) => (t < 0.5
  ? `color-mix(in oklab, var(--heat-mid) ${(t * 200).toFixed(0)}%, var(--heat-low))`
  : `color-mix(in oklab, var(--heat-high) ${(t * 200 - 100).toFixed(0)}%, var(--heat-mid))`);

const FEW = 4; // algorithms whose choices are shown at once

function choiceCharts() {
  const recorded = data.choices.some(({ rates, share }) => rates.length && Object.keys(share).length);
  if (recorded) $("heat-legend").append(heatLegend());
  const told = data.choices.filter(({ share, trials }) => Object.keys(share).length || Object.keys(trials).length);
  if (told.length <= FEW) return choicesOf(data.choices);
  const controls = html("form", { id: "choice-controls", class: "controls", onsubmit: "return false" });
  const entries = told.map(({ algorithm }, i) => ({ value: algorithm, text: nameOf(algorithm), on: i === 0 }));
  choices(controls, "Chosen by", "radio", entries, (name) => choicesOf(told.filter(({ algorithm }) => algorithm === name)));
  $("heat-legend").before(controls);
  choicesOf([told[0]]);
}

function choicesOf(choices) {
  const host = $("choice-charts");
  host.replaceChildren();
  const inOrder = (sizes) => Object.keys(sizes).sort((a, b) => a - b);
  const maps = choices.filter(({ rates }) => rates.length)
    .flatMap((choice) => inOrder(choice.share).map((size) => ({ choice, size })));
  if (!maps.length) host.append(none("There are no records of which rate was taken, so what the bandit chose cannot be shown."));
  const several = unique(maps.map(({ choice }) => choice)).length > 1;
  for (const { choice, size } of maps) {
    const title = several ? `${nameOf(choice.algorithm)}, batch size ${size}` : `Batch size ${size}`;
    responsive(plotIn(figureIn(host, title)), (chart) => heatMap(chart, title, size, choice.share[size], choice.rates));
  }
  const charts = choices.map(({ algorithm, trials }) => ({
    algorithm, lines: inOrder(trials).filter((size) => trials[size].mean.some(known)).map((size, i) => ({
      id: size, name: `${nameOf(algorithm)}, batch ${size}`, cls: `step${i % 5}`, end: size, xs: trials[size].epoch,
      ys: trials[size].mean,
    })),
  })).filter(({ lines }) => lines.length);
  if (!charts.length) host.append(none("There are no runs that choose among rates, so there are no trials to count."));
  for (const { algorithm, lines } of charts) {
    const whose = charts.length > 1 ? `${nameOf(algorithm)}, all batch sizes` : "all batch sizes";
    responsive(plotIn(figureIn(host, `Trials per step, ${whose}`)), (chart) => lineChart(chart, {
      lines, height: 296, right: 44, left: 40, label: `Trials per step against epochs, ${nameOf(algorithm)}`,
      x: { tick: number, title: "epoch" }, y: { format: number, tick: number, title: "Trials per step" },
      onPoint: (id) => highlight(chart, id),
    }));
  }
}

function heatLegend() {
  const label = "Colour scale from no steps to all steps";
  const bar = svg("svg", { viewBox: "0 0 300 34", width: 300, height: 34, role: "img", "aria-label": label });
  const wide = 250 / LEVELS;
  for (let i = 0; i < LEVELS; i++) {
    const style = `fill:${ofColour(i / (LEVELS - 1))}`;
    bar.append(svg("rect", { x: 20 + i * wide, width: wide + 0.5, height: 12, style }));
  }
  for (const share of [0, 0.01, 0.1, 1]) {
    bar.append(words(20 + heat(share) * 250, 28, shortPercent(share), "middle", "small"));
  }
  return html("p", { class: "quiet" }, "Share of an epoch’s steps", bar);
}

function heatMap(host, title, size, { epoch, arms }, rates) {
  const [left, top, cell, gap] = [46, 4, 7.4, 6];
  const width = Math.max(host.clientWidth, 200);
  const high = top + cell * rates.length;
  const column = (width - left - 4) / epoch.length;
  const rows = rates.length;
  const height = high + gap + cell + 36;
  const label = `Rates chosen, ${title}, by epoch; arrow keys read the cells`;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-label": label });
  root.append(svg("rect", { class: "ground", x: left, y: top, width: column * epoch.length, height: high - top }));
  root.append(svg("rect", { class: "ground", x: left, y: high + gap, width: column * epoch.length, height: cell }));
  const idle = arms.map((row) => Math.max(0, 1 - row.reduce((sum, value) => sum + (value ?? 0), 0)));
  const valueAt = (i, row) => (row < rows ? arms[i][row] : idle[i]);
  const yOf = (row) => (row < rows ? top + row * cell : high + gap);
  // One path for each level of colour: thousands of cells would be slow.
  const paths = Array.from({ length: LEVELS }, () => []);
  epoch.forEach((_, i) => {
    for (let row = 0; row <= rows; row++) {
      const share = valueAt(i, row);
      if (!(share > 1e-5)) continue;
      const level = Math.max(2, Math.round(heat(share) * (LEVELS - 1))); // next to none is still to be seen
      const [x, w] = [left + i * column, column + 0.3].map((value) => value.toFixed(2));
      paths[level].push(`M${x} ${yOf(row).toFixed(2)}h${w}v${cell}h-${w}z`);
    }
  });
  paths.forEach((parts, level) => {
    if (parts.length) root.append(svg("path", { d: parts.join(""), style: `fill:${ofColour(level / (LEVELS - 1))}` }));
  });
  const every = Math.max(1, Math.round((rows - 1) / 4));
  for (let row = 0; row < rows; row += every) {
    root.append(words(left - 7, yOf(row) + cell / 2 + 4, powerOfTen(rates[row]), "end"));
  }
  root.append(words(left - 7, yOf(rows) + cell / 2 + 4, "none", "end"));
  epoch.forEach((value, i) => {
    const final = i === epoch.length - 1;
    if (i > 0 && !final && (value % 100 || (epoch.length - i) * column < 50)) return;
    root.append(words(left + (i + 0.5) * column, height - 19, String(value), final ? "end" : "middle"));
  });
  root.append(words(width - 4, height - 4, "epoch", "end"));
  const box = root.appendChild(svg("rect", { class: "off", width: column, height: cell }));
  explore(root, {
    pick(px, py) {
      const i = Math.floor((px - left) / column);
      const row = py > high + gap / 2 ? rows : Math.min(rows - 1, Math.floor((py - top) / cell));
      return i >= 0 && i < epoch.length && row >= 0 && py < high + gap + cell ? { i, row } : null;
    },
    step(item, key) {
      if (!item) return { i: 0, row: 0 };
      const [di, drow] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key] ?? [0, 0];
      const within = (value, most) => Math.min(most, Math.max(0, value));
      return { i: within(item.i + di, epoch.length - 1), row: within(item.row + drow, rows) };
    },
    show(item) {
      box.setAttribute("class", item ? "cell" : "off");
      if (!item) return null;
      const [x, y] = [left + item.i * column, yOf(item.row)];
      box.setAttribute("x", x);
      box.setAttribute("y", y);
      const what = item.row < rows ? `rate ${number(rates[item.row])}` : "nothing moved";
      const value = `${percent(valueAt(item.i, item.row))} of the steps`;
      const where = `Batch ${size}, epoch ${epoch[item.i]}`;
      const content = [html("b", null, where), `${sentenceCase(what)}: ${value}`];
      return { x: x + column, y: y + cell / 2, content, text: `${where}, ${what}, ${value}` };
    },
  });
  host.replaceChildren(root);
}

// ---- Figure 2.

function clockCharts() {
  const host = $("clock-charts");
  const runs = data.singles;
  const why = whyMissing("Figure 2", "There are no single runs against the clock, so there is no Figure 2.");
  if (!runs.length) return host.append(none(why));
  const names = runs.map((run) => {
    const attributes = { type: "button", class: classOf(run.algorithm), "data-line": run.run };
    return pointing(html("button", attributes, run.label), host, run.run);
  });
  const charts = html("div", { class: "grid two" });
  const hint = html("span", { class: "screen-only" }, "Point at a line or at a name to see one run in all four panels.");
  host.append(html("p", null, "Runs that were trained one at a time, so that their seconds can be compared. ", hint),
    html("ul", { class: "legend" }, each("li", names)), charts);
  for (const measure of ["error", "nll", "rate", "norm"]) {
    const { title, format, tick } = MEASURES[measure];
    const lines = runs.filter((run) => run[measure].some(known)).map((run) => ({
      id: run.run, name: run.label, cls: `${classOf(run.algorithm)} dashes`, end: run.short, xs: run.seconds,
      ys: run[measure],
    }));
    const figure = figureIn(charts, title);
    if (!lines.length) {
      figure.append(none(`None of these runs has a ${title.toLowerCase()} on record.`));
      continue;
    }
    responsive(plotIn(figure), (chart) => lineChart(chart, {
      lines, height: 290, bottom: 36, right: roomFor(lines), label: `${title} against seconds`, onPoint: (id) => highlight(host, id),
      x: { log: true, tick: powerOfTen, title: "seconds", name: "second" }, y: { log: true, format, tick, title },
    }));
    const without = runs.length - lines.length;
    const note = `${count(without, "run")} not drawn: no ${title.toLowerCase()} on record.`;
    if (without) figure.append(html("p", { class: "caption" }, note));
  }
}

/** What the labels at the ends of lines need beside the axes. */
const roomFor = (lines) => 18 + 6.6 * Math.max(...lines.map((line) => line.end.length));

// ---- Tables, claims, provenance.

function tables() {
  const host = $("table-list");
  const why = whyMissing("Tables 1", "There are no timings of single runs, so there are no Tables 1 and 2.");
  if (!data.tables.length) return host.append(none(why));
  host.append(...data.tables.map(gridTable));
}

function claims() {
  if (!data.claims.length && data.beyond) {
    document.querySelector('nav a[href="#claims"]').remove();
    return $("claims").remove();
  }
  if (!data.claims.length) return $("claim-list").append(none("No claims were judged."));
  const rows = data.claims.map((claim) => {
    const cls = OUTCOMES[claim.verdict] ?? "unknown";
    const sign = html("span", { "aria-hidden": "true" }, OUTCOME_SIGNS[cls]);
    const badge = html("span", { class: `badge ${cls}` }, sign, claim.verdict ?? "no verdict");
    const rule = html("p", null, `${sentenceCase(pretty(claim.rule))}.`);
    const ours = sentenceCase(pretty(claim.ours.replace(/^no verdict: /, "")));
    return html("tr", null, html("td", null, String(claim.number)),
      html("td", null, pretty(claim.claim), html("details", null, html("summary", null, "The rule"), rule)),
      html("td", { "data-name": "Paper" }, pretty(claim.paper)), html("td", { "data-name": "Here" }, ours),
      html("td", null, badge));
  });
  const head = heads(["", "Claim", "Paper", "Here", "Verdict"]);
  $("claim-list").append(html("table", { class: "verdicts" }, head, html("tbody", null, rows)));
}

function origin() {
  const { devices, precisions, versions, dates, minutes, units, runs, commands } = data.origin;
  if (!units) return $("origin-list").append(html("p", null, provenance()));
  const entries = {
    Runs: `${count(runs, "run")} in ${count(units, "unit")}`,
    Devices: devices.join(", "),
    Precision: precisions.join(", "),
    Versions: versions.join(", "),
    Dates: dates.join(", "),
    Duration: `${minutes.toFixed(1)} minutes, evaluations included`,
    Commands: each("code", commands),
  };
  const told = Object.entries(entries).filter(([, value]) => value.length)
    .flatMap(([name, value]) => [html("dt", null, name), html("dd", null, value)]);
  $("origin-list").append(html("dl", null, told));
}

/** Sentences of the page that speak of an algorithm name the one that this study has. */
function names() {
  const curve = Object.values(data.tuning)[0];
  const choosing = data.choices.map(({ algorithm }) => nameOf(algorithm));
  const told = {
    tuned: curve && nameOf(curve.tuned),
    reference: curve && nameOf(curve.reference),
    choosing: choosing.length > 1 ? "Each bandit" : choosing[0],
  };
  for (const word of document.querySelectorAll("[data-name-of]")) {
    word.textContent = told[word.dataset.nameOf] ?? word.textContent;
  }
}

for (const section of [names, answers, header, beyond, figure1, tuningCharts, benchmark, choiceCharts, clockCharts, tables, claims, origin]) section();
