"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const NAMES = { ducb: "DUCB", adadelta: "AdaDelta", sgd: "SGD" };
const nameOf = (algorithm) => NAMES[algorithm] ?? algorithm;
const classOf = (algorithm) => (algorithm in NAMES ? algorithm : "other");
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const unique = (values) => [...new Set(values)];
const last = data.epochs.at(-1);

// ---- Elements. Text only ever becomes a text node, so that no name can become markup.

const $ = (id) => document.getElementById(id);

function make(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}
const html = (tag, attributes, ...children) => make(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  make(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
/** Words between backticks become code. */
const rich = (text) => text.split("`").map((part, i) => (i % 2 ? html("code", null, part) : part));
const none = (sentence) => html("p", { class: "none" }, rich(sentence));
const drawn = (host) => host.appendChild(html("div", { class: "plot" }));

/** The sentence that says why something is not there, or one of our own. */
const whyMissing = (word, otherwise) => data.missing.find((sentence) => sentence.includes(word)) ?? otherwise;

// ---- Numbers.

const NBSP = "\u00a0";
const raised = (power) => String(power).replace(/./g, (c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] ?? "⁻");

function number(value) {
  if (!known(value)) return "not finite";
  if (value === 0) return "0";
  const [digits, power] = value.toExponential(1).split("e").map(Number);
  if (power < -3 || power > 4) return `${digits.toFixed(1)}${NBSP}×${NBSP}10${raised(power)}`;
  return Number(value.toPrecision(3)).toLocaleString("en");
}
const percent = (value) => (known(value) ? `${(value * 100).toFixed(value >= 0.0995 ? 1 : 2)}${NBSP}%` : "not finite");
const count = (value, noun) => `${value.toLocaleString("en")} ${noun}${value === 1 ? "" : "s"}`;
const sentenceCase = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const list = (words) => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`);

/** Numbers inside sentences, written as everywhere else on the page. */
const pretty = (text) => text.replace(/\d+(\.\d+)?e[+-]\d+/g, (found) => number(Number(found)))
  .replace(/(\d)%/g, `$1${NBSP}%`);

function powerOfTen(value) {
  const power = Math.round(Math.log10(value));
  return Math.abs(power) > 2 && Math.abs(value / 10 ** power - 1) < 1e-6 ? `10${raised(power)}` : number(value);
}
const shortPercent = (value) => `${Number((value * 100).toPrecision(3))}${NBSP}%`;

const MEASURES = {
  nll: { title: "Training objective", format: number, tick: powerOfTen },
  error: { title: "Test error", format: percent, tick: shortPercent },
  rate: { title: "Learning rate", format: number, tick: powerOfTen },
  trials: { title: "Trials per step", format: number, tick: number },
  norm: { title: "Gradient norm", format: number, tick: powerOfTen },
};

// ---- Scales and axes.

/** A value outside the domain, zero on a log axis too, comes to lie on the edge, or as far beyond as `slack` allows. */
function scale({ log, domain }, range, slack = 0) {
  const straight = log ? Math.log : (value) => value;
  const [from, to] = domain.map(straight);
  const within = (part) => Math.min(1 + slack, Math.max(-slack, part));
  return (value) => range[0] + (range[1] - range[0]) * within((straight(value) - from) / (to - from));
}

function domainOf(values, log, room = 0.04) {
  const usable = values.filter((value) => known(value) && (!log || value > 0));
  if (!usable.length) return log ? [0.1, 1] : [0, 1];
  let [low, high] = [Math.min(...usable), Math.max(...usable)];
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
  const edge = log ? (high / low) ** room : (high - low) * room;
  return log ? [low / edge, high * edge] : [low - edge, high + edge];
}

function ticks({ log, domain: [low, high] }, most) {
  if (log && high / low > 6) {
    const stride = Math.max(1, Math.ceil(Math.log10(high / low) / most));
    const steps = high / low > 200 ? [1] : [1, 2, 5];
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      if (power % stride === 0) found.push(...steps.map((step) => Number(`${step}e${power}`)));
    }
    return found.filter((value) => value >= low && value <= high);
  }
  const rough = (high - low) / most;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((factor) => factor * unit >= rough);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) found.push(Number((i * step).toPrecision(9)));
  return found;
}

function rules({ root, left, wide }, axis, at, room) {
  for (const value of ticks(axis, Math.max(3, Math.floor(room / 42)))) {
    root.append(
      svg("line", { class: "rule", x1: left, x2: wide, y1: at(value), y2: at(value) }),
      svg("text", { x: left - 8, y: at(value) + 4, "text-anchor": "end" }, axis.tick(value)),
    );
  }
}

/** An SVG as wide as its host, with axes; `x` and `y` give pixels. */
function frame(host, { height, x, y, label, top = 12, right = 12, bottom = 24, left = 52, slack }) {
  const width = Math.max(host.clientWidth, 200);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-label": label });
  const [wide, high] = [width - right, height - bottom];
  const place = { root, top, left, wide, high, x: scale(x, [left, wide]), y: scale(y, [high, top], slack) };
  rules(place, y, place.y, high - top);
  root.append(svg("line", { class: "axis", x1: left, x2: wide, y1: high, y2: high }));
  const own = bottom > 30; // room for the axis' title below its numbers, or else beside them
  for (const value of ticks(x, Math.max(3, Math.floor((wide - left) / 70)))) {
    const at = place.x(value);
    root.append(svg("line", { class: "axis", x1: at, x2: at, y1: high, y2: high + 4 }));
    if (own || at < wide - 7 * x.title.length - 14) {
      root.append(svg("text", { x: at, y: high + 17, "text-anchor": "middle" }, x.tick(value)));
    }
  }
  root.append(svg("text", { x: wide, y: own ? height - 4 : high + 17, "text-anchor": "end" }, x.title));
  if (y.heading) root.append(svg("text", { x: 0, y: 12 }, y.heading));
  host.replaceChildren(root);
  return place;
}

// ---- Drawing again when the room changes, and for paper.

const redraws = new Map();
const watcher = new ResizeObserver((entries) => requestAnimationFrame(() => {
  for (const { target } of entries) {
    const kept = redraws.get(target);
    if (kept && target.isConnected && Math.abs(kept.width - target.clientWidth) > 1) redraw(target, kept);
  }
}));
function redraw(host, kept) {
  kept.width = host.clientWidth;
  kept.draw(host);
}
function responsive(host, draw) {
  redraws.set(host, { draw, width: host.clientWidth });
  draw(host);
  watcher.observe(host);
  return host;
}
function forPaper(on) {
  document.documentElement.classList.toggle("paper", on);
  for (const details of document.querySelectorAll("details")) details.open = on;
  for (const [host, kept] of redraws) if (host.isConnected) redraw(host, kept);
}
addEventListener("beforeprint", () => forPaper(true));
addEventListener("afterprint", () => forPaper(false));

// ---- Pointing: one way for pointer and keyboard, one tooltip.

const tip = $("tip");
const hideTip = () => { tip.hidden = true; };
addEventListener("scroll", hideTip, { passive: true });

function showTip(root, { x, y, content }) {
  const box = root.getBoundingClientRect();
  const zoom = box.width / root.viewBox.baseVal.width;
  const [left, top] = [box.left + x * zoom, box.top + y * zoom];
  tip.replaceChildren(...content);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const beside = left + 16 + width < innerWidth - 8 ? left + 16 : left - 16 - width;
  tip.style.left = `${Math.min(Math.max(8, beside), innerWidth - width - 8)}px`;
  tip.style.top = `${Math.min(Math.max(8, top - height / 2), innerHeight - height - 8)}px`;
}
const say = (text) => { $("live").textContent = text; };

/** `pick(x, y)` and `step(item, key)` find an item, `show(item)` marks it (or nothing) and returns what the tip says. */
function explore(root, { pick, step, show, choose = () => {} }) {
  let current = null;
  root.setAttribute("tabindex", "0");
  root.setAttribute("role", "application");
  const go = (item, spoken) => {
    current = item;
    const told = show(item);
    if (!told) return hideTip();
    showTip(root, told);
    if (spoken) say(told.text);
  };
  const under = (event) => {
    const box = root.getBoundingClientRect();
    const zoom = root.viewBox.baseVal.width / box.width;
    return pick((event.clientX - box.left) * zoom, (event.clientY - box.top) * zoom);
  };
  root.addEventListener("pointermove", (event) => go(under(event)));
  root.addEventListener("pointerleave", () => go(null));
  root.addEventListener("blur", () => go(null));
  root.addEventListener("focus", () => { if (root.matches(":focus-visible") && !current) go(step(null, ""), true); });
  root.addEventListener("click", (event) => {
    const item = under(event);
    if (item) { choose(item); go(item); }
  });
  root.addEventListener("keydown", (event) => {
    if ((event.key === "Enter" || event.key === " ") && current) choose(current);
    else if (event.key === "Escape") go(null);
    else if (/^(Arrow|Page)/.test(event.key)) go(step(current, event.key), true);
    else return;
    event.preventDefault();
  });
}

// ---- Lines: any number of them, labelled where they end.

/** A line has `id`, `name`, `cls`, `xs`, `ys`, and may have an `end` label and its own `tip(index)`. */
function lineChart(host, { lines, x, y, before, after, onPoint, ...size }) {
  x.domain ??= domainOf(lines.flatMap((line) => line.xs), x.log, 0);
  y.domain ??= domainOf(lines.flatMap((line) => line.ys), y.log);
  const place = frame(host, { x, y, slack: 2, ...size });
  const { root, top, left, wide, high } = place;
  // An SVG within cuts off what leaves the axes.
  const [w, h] = [wide - left + 6, high - top + 6];
  const inner = svg("svg", { x: left - 3, y: top - 3, width: w, height: h, viewBox: `${left - 3} ${top - 3} ${w} ${h}` });
  root.append(inner);
  before?.(place, inner);
  const dots = lines.map((line) => line.xs.map((value, i) => (
    known(value) && known(line.ys[i]) ? [place.x(value), place.y(line.ys[i])] : null)));
  lines.forEach((line, at) => {
    let pen = "M";
    const path = dots[at].map((dot) => {
      const part = dot ? `${pen}${dot[0].toFixed(1)} ${dot[1].toFixed(1)}` : "";
      pen = dot ? "L" : "M"; // a gap where a value is missing
      return part;
    });
    inner.append(svg("path", { class: `line ${line.cls}`, d: path.join("") || null, "data-line": line.id }));
  });
  endLabels(place, lines, dots);
  after?.(place);
  const bead = root.appendChild(svg("circle", { r: 4, class: "off" }));
  explore(root, {
    pick(px, py) {
      let [best, near] = [null, 40];
      dots.forEach((row, at) => row.forEach((dot, i) => {
        const far = dot ? Math.hypot(dot[0] - px, dot[1] - py) : near;
        if (far < near) [best, near] = [{ at, i }, far];
      }));
      return best;
    },
    step(item, key) {
      const drawable = dots.map((row, at) => at).filter((at) => dots[at].some(Boolean));
      if (!drawable.length) return null;
      const sign = /Left|Up/.test(key) ? -1 : 1;
      let { at, i } = item ?? { at: drawable[0], i: -1 };
      if (/Up|Down/.test(key)) {
        at = drawable.at((drawable.indexOf(at) + sign) % drawable.length);
        i = Math.min(i, dots[at].length - 1);
        return { at, i: dots[at][i] ? i : dots[at].findIndex(Boolean) };
      }
      do i += sign; while (i >= 0 && i < dots[at].length && !dots[at][i]);
      return dots[at][i] ? { at, i } : item;
    },
    show(item) {
      onPoint?.(item ? lines[item.at].id : null);
      const line = item && lines[item.at];
      bead.setAttribute("class", line ? `bead ${line.cls}` : "off");
      if (!line) return null;
      const [cx, cy] = dots[item.at][item.i].map((value, i) => (i ? Math.max(top, value) : value));
      bead.setAttribute("cx", cx);
      bead.setAttribute("cy", cy);
      const told = line.tip?.(item.i)
        ?? [`${x.name ?? x.title} ${number(line.xs[item.i])}`, `${y.title}: ${y.format(line.ys[item.i])}`];
      const content = [html("b", null, line.name), ...told.map((row) => html("div", null, row))];
      return { x: cx, y: cy, content, text: [line.name, ...told].join(", ") };
    },
  });
  return place;
}

function endLabels({ root, wide }, lines, dots) {
  const labels = lines.map((line, at) => ({ line, at: dots[at].findLast(Boolean) }))
    .filter(({ line, at }) => line.end && at).sort((a, b) => a.at[1] - b.at[1]);
  const spots = labels.map(({ at }) => at[1]);
  for (let i = 1; i < spots.length; i++) spots[i] = Math.max(spots[i], spots[i - 1] + 13);
  // As much up as down: labels stay about where their lines end.
  const shift = spots.reduce((sum, spot, i) => sum + spot - labels[i].at[1], 0) / (spots.length || 1);
  labels.forEach(({ line, at }, i) => {
    const spot = spots[i] - shift;
    root.append(
      svg("path", { class: `leader ${line.cls}`, d: `M${at[0] + 2} ${at[1]}L${wide + 10} ${spot}` }),
      svg("text", { class: `end ${line.cls}`, x: wide + 13, y: spot + 4, "data-line": line.id }, line.end),
    );
  });
}

function highlight(scope, id) {
  for (const part of scope.querySelectorAll("[data-line]")) {
    part.classList.toggle("dim", id !== null && part.dataset.line !== id);
    part.classList.toggle("lifted", part.dataset.line === id);
  }
}

// ---- The head of the page.

function header() {
  const { origin, settings, claims, tuning } = data;
  document.title = `Hot swapping: the study “${data.name}”`;
  const algorithms = ["ducb", "adadelta", "sgd"].filter((name) => settings.some((s) => s.algorithm === name)).map(nameOf);
  $("lead").textContent = "Bache, DeCoste and Smyth (2015) let a bandit, DUCB, choose the learning rate of every minibatch "
    + `and a line search protect the step. This page shows what came of the study “${data.name}”`
    + (origin.runs ? `: ${count(origin.runs, "training run")} of ${list(algorithms)}.` : ", which has no training runs yet.");
  const cards = [];
  if (settings.length) {
    const seeds = Math.max(0, ...settings.map((s) => s.at[last].seeds.length));
    cards.push([origin.runs.toLocaleString("en"), `training runs: ${count(settings.length, "setting")}, up to ${count(seeds, "seed")} each, ${last} epochs`]);
  }
  const searched = tuning.test_error;
  if (searched) cards.push(searched.caught_up === null
    ? ["never", `does a random search over SGD’s ${searched.expected.length} settings match the test error of one DUCB run, ${percent(searched.one_run)}`]
    : [searched.caught_up.toLocaleString("en"), `${searched.caught_up === 1 ? "training" : "trainings"} of SGD with random settings are needed, on average, to match the test error of one DUCB run, ${percent(searched.one_run)}`]);
  const fitted = tuning.train_nll;
  if (fitted) cards.push(fitted.caught_up === null
    ? ["never", `does such a search match the training objective of one DUCB run: ${number(fitted.one_run)} against ${number(fitted.expected.at(-1))} for the best of all ${fitted.expected.length}`]
    : [fitted.caught_up.toLocaleString("en"), `to match the training objective of one DUCB run, ${number(fitted.one_run)}`]);
  const judged = claims.filter((claim) => claim.verdict);
  const times = (verdict) => judged.filter((claim) => claim.verdict === verdict).length;
  if (claims.length) cards.push([`${times("reproduced")} of ${claims.length}`,
    `of the paper’s claims are reproduced, ${times("partly reproduced")} in part, ${times("not reproduced")} not`
    + (judged.length < claims.length ? `; ${claims.length - judged.length} wait for data` : "")]);
  $("headlines").append(...cards.map(([big, small]) => html("div", { class: "headline" }, html("b", null, big), html("span", null, small))));
  $("provenance").textContent = provenance();
  if (data.missing.length) {
    $("missing").append("Not everything is here:", html("ul", null, data.missing.map((text) => html("li", null, rich(text)))));
    $("missing").hidden = false;
  }
}

function provenance() {
  const { origin } = data;
  if (!origin.units) return "Nobody can say what made these numbers: the study has no provenance.";
  const days = unique([origin.dates[0], origin.dates.at(-1)].filter(Boolean)).join(" to ");
  return `${count(origin.runs, "run")} in ${count(origin.units, "unit")}, ${origin.minutes.toFixed(1)} minutes of training and `
    + `evaluation on ${list(origin.devices)} (${[...origin.precisions, ...origin.versions].join("; ")})${days && `, ${days}`}.`;
}

// ---- Figure 1.

const mark = (algorithm, size = 1) => (algorithm === "adadelta"
  ? svg("path", { class: "mark", d: `M0 ${-6.5 * size}L${6 * size} ${4.5 * size}H${-6 * size}Z` })
  : svg("circle", { class: "mark", r: (algorithm === "ducb" ? 6.2 : 2.9) * size }));

const LETTERS = ["A", "B", "C", "D"];

/** A few settings learn nothing; on their scale all others would lie on one another. Where to break the axis, or 0. */
function breakOf(errors) {
  const sorted = [...errors].sort((a, b) => a - b);
  const most = sorted[Math.floor(0.65 * sorted.length)];
  const unit = 10 ** Math.floor(Math.log10(most || 1));
  const at = Number((Math.ceil(most / unit) * unit).toPrecision(3));
  return most && sorted.at(-1) > 3 * at ? at : 0;
}

function figure1() {
  const { settings, epochs } = data;
  if (!settings.length) {
    $("controls").hidden = true;
    $("curves").hidden = true;
    $("scatter").append(none(whyMissing("measurements", "There are no measurements of training runs: nothing to draw.")));
    return;
  }
  const algorithms = unique(["ducb", "adadelta", "sgd", ...settings.map((s) => s.algorithm)])
    .filter((name) => settings.some((s) => s.algorithm === name));
  const batches = unique(settings.map((s) => s.batch)).sort((a, b) => a - b);
  const moments = settings.flatMap((s) => epochs.map((epoch) => s.at[epoch]));
  const errors = moments.flatMap((m) => m.error).filter(known);
  const cut = breakOf(errors);
  const state = { epoch: last, algorithms: new Set(algorithms), batches: new Set(batches) };
  const best = (algorithm) => settings.filter((s) => s.algorithm === algorithm && drawable(s))
    .sort((a, b) => a.at[last].error[0] - b.at[last].error[0])[0];
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
    const group = (legend, type, entries, change) => html("fieldset", null, html("legend", null, legend), entries.map(([value, text, on, icon]) => {
      const input = html("input", { type, name: legend, value, checked: on });
      input.addEventListener("change", () => { change(value, input.checked); update(); });
      return html("label", null, input, html("span", null, icon, text));
    }));
    const toggle = (set) => (value, on) => (on ? set.add(value) : set.delete(value));
    const icon = (algorithm) => svg("svg", { viewBox: "-8 -8 16 16", class: classOf(algorithm), "aria-hidden": "true" }, mark(algorithm));
    $("controls").append(
      group("Epoch", "radio", epochs.map((epoch) => [epoch, String(epoch), epoch === state.epoch]), (epoch) => {
        state.epoch = epoch;
        curves();
      }),
      group("Algorithm", "checkbox", algorithms.map((name) => [name, nameOf(name), true, icon(name)]), toggle(state.algorithms)),
      group("Batch size", "checkbox", batches.map((size) => [size, String(size), true]), toggle(state.batches)),
    );
  }

  function draw() {
    const host = $("scatter");
    const narrow = host.clientWidth < 500;
    const height = narrow ? 460 : 610;
    const split = cut ? Math.round(height * 0.25) : 24; // the upper part gets a quarter
    const y = { log: true, domain: domainOf(errors, true, 0.02), tick: shortPercent, heading: "Test error" };
    const upper = { ...y, domain: [cut, y.domain[1]] };
    if (cut) y.domain = [y.domain[0], cut];
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
      root.append(svg("text", { class: "small", x: wide - 6, y: split - 11, "text-anchor": "end" }, `above ${shortPercent(cut)}: squeezed`));
    }
    const order = ["sgd", "adadelta", "ducb"]; // few and large over many and small
    const sorted = settings.map((setting, i) => ({ setting, i }))
      .sort((a, b) => order.indexOf(a.setting.algorithm) - order.indexOf(b.setting.algorithm));
    dots = sorted.map(({ setting, i }) => {
      const bar = svg("path", { class: "bar" });
      const node = svg("g", { class: `dot ${classOf(setting.algorithm)}`, "data-i": i }, bar, mark(setting.algorithm, narrow ? 0.85 : 1));
      const few = ["ducb", "adadelta"].includes(setting.algorithm);
      if (few) node.append(svg("text", { class: "name halo", y: setting.algorithm === "ducb" ? -11 : 18, "text-anchor": "middle" }, String(setting.batch)));
      root.append(node);
      return { setting, i, node, bar, r: few ? 6 : 2.9 };
    });
    picked = root.appendChild(svg("g"));
    ring = root.appendChild(svg("circle", { class: "ring off", r: 10 }));
    explore(root, { pick: nearest, step: neighbour, show: point, choose: (dot) => choose(dot.setting) });
    update();
  }

  function update() {
    let [shown, lost] = [0, 0];
    for (const dot of dots) {
      const moment = dot.setting.at[state.epoch];
      const asked = wanted(dot.setting);
      dot.on = asked && drawable(dot.setting);
      dot.node.classList.toggle("off", !dot.on);
      shown += dot.on;
      lost += asked && !dot.on;
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
    if (lost) notes.push(`${lost} not drawn: ${lost === 1 ? "its" : "their"} training objective or test error is not a finite number.`);
    $("shown").textContent = notes.join(" ");
  }

  function rings() {
    picked.replaceChildren(...picks.flatMap(({ setting, slot }) => {
      const dot = dots.find((candidate) => candidate.setting === setting);
      if (!dot.on) return [];
      const node = svg("g", { class: `picked pick${slot}` }, svg("circle", { r: 10 }), svg("text", { class: "halo", x: -14, y: 5, "text-anchor": "end" }, LETTERS[slot]));
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
    const row = (name, a, b, cls) => html("tr", { class: cls }, [name, number(a), percent(b)].map((text) => html("td", null, text)));
    const table = html("table", null,
      html("tr", null, ["", "objective", "test error"].map((text) => html("th", null, text))),
      row("median", nll[0], error[0], "median"), row("lowest", nll[1], error[1]), row("highest", nll[2], error[2]),
      seeds.map((seed) => row(`seed ${seed.seed}`, seed.nll, seed.error)));
    const about = `${count(seeds.length, "seed")}, epoch ${state.epoch}`;
    return {
      x: dot.x, y: dot.y, content: [html("b", null, setting.label), html("span", { class: "quiet" }, about), table],
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
      panel.replaceChildren(html("h3", null, "Curves"), html("p", { class: "quiet" }, "No setting is picked. Click a mark to see how its training went; up to four can be compared."));
      return;
    }
    const button = html("button", { type: "button", id: "clear" }, "Clear");
    button.addEventListener("click", clear);
    const chips = shown.map(({ setting, slot }) => {
      const away = html("button", { type: "button", "aria-label": `Remove ${setting.label}` }, "×");
      away.addEventListener("click", () => choose(setting));
      return html("li", { class: `pick${slot}` }, html("b", null, LETTERS[slot]), html("span", null, setting.label), away);
    });
    const kinds = ["nll", "error", "rate", "trials"].filter((kind) => shown.some(({ setting }) => setting.curve[kind]?.some(known)));
    const hosts = html("div", { class: "mini" });
    panel.replaceChildren(html("div", { class: "head" }, html("h3", null, "Curves, the median of the seeds"), button), html("ul", { class: "picks" }, chips), hosts);
    for (const kind of kinds) {
      const { title, format, tick } = MEASURES[kind];
      const lines = shown.filter(({ setting }) => setting.curve[kind]).map(({ setting, slot }) => ({
        id: String(slot), name: setting.label, cls: `pick${slot}`, xs: setting.curve.epoch, ys: setting.curve[kind], end: LETTERS[slot],
      }));
      const only = kind === "rate" || kind === "trials" ? ", DUCB" : "";
      responsive(drawn(hosts), (host) => lineChart(host, {
        lines, height: kinds.length > 2 ? 124 : 240, right: 26, left: 46, top: 24, label: `${title} against epochs`,
        x: { log: true, tick: number, title: "epoch" },
        y: { log: kind !== "trials", format, tick, title, heading: title + only },
        onPoint: (id) => highlight(hosts, id),
        before: ({ x, top, high }, inner) => inner.append(svg("line", { class: "moment", x1: x(state.epoch), x2: x(state.epoch), y1: top, y2: high })),
      }));
    }
    if (!kinds.length) hosts.append(none("None of these has a finite number at any epoch."));
  }

  controls();
  algorithms.map(best).filter(Boolean).slice(0, 4).forEach((setting) => picks.push({ setting, slot: free.shift() }));
  responsive($("scatter"), draw);
  curves();
  $("runs").addEventListener("keydown", (event) => { if (event.key === "Escape") clear(); });
  const key = html("p", { class: "quiet paper-only" }, algorithms.map((name) => `${{ ducb: "●", adadelta: "▲", sgd: "•" }[name] ?? "•"} ${nameOf(name)}`).join("    "), "; the numbers beside marks are batch sizes.");
  $("scatter").before(key);
}

// ---- The price of tuning.

function tuningCharts() {
  const kinds = [["train_nll", "nll"], ["test_error", "error"]].filter(([name]) => data.tuning[name]);
  const host = $("tuning-charts");
  if (!kinds.length) return host.append(none("This needs finished settings of both SGD and DUCB, which are not here."));
  for (const [name, measure] of kinds) {
    const curve = data.tuning[name];
    const { title, format, tick } = MEASURES[measure];
    const trials = curve.expected.map((_, i) => i + 1);
    const sizes = Object.keys(curve.ducb).filter((size) => known(curve.ducb[size])).sort((a, b) => a - b);
    const end = trials.at(-1);
    const lines = [
      ...sizes.map((size) => ({
        id: size, name: `DUCB, batch ${size}`, cls: `ducb flat${curve.ducb[size] === curve.one_run ? " main" : ""}`, xs: [1, end], ys: [curve.ducb[size], curve.ducb[size]],
        end: `DUCB ${size}`, tip: () => [`${title}: ${format(curve.ducb[size])}`, reached(curve.caught_up_by_batch[size])],
      })),
      {
        id: "search", name: "SGD, random search", cls: "search", xs: trials, ys: curve.expected,
        tip: (i) => [`Best of ${count(i + 1, "training")}: ${format(curve.expected[i])}`, `eight of ten: ${format(curve.low[i])} to ${format(curve.high[i])}`],
      },
    ];
    const every = [...curve.expected, ...curve.low, ...curve.high, ...sizes.map((size) => curve.ducb[size])];
    // The first few trainings are so much worse that the rest would be flat; they leave at the top.
    const cut = measure === "error" && known(curve.one_run) ? Math.min(Math.max(...every), 1.5 * curve.one_run) : Math.max(...every);
    const figure = html("figure", null, html("h3", null, `Best ${title.toLowerCase()} of k trainings`));
    host.append(figure);
    const chart = drawn(figure);
    responsive(chart, () => lineChart(chart, {
      lines, height: 340, right: 84, bottom: 36, label: `${title} of the best of k trainings of SGD, against DUCB`,
      x: { log: true, domain: [1, Math.max(2, end)], tick: number, title: "k, trainings of SGD" },
      y: { log: true, domain: domainOf([...every.filter((value) => value <= cut), cut], true, 0.03), format, tick },
      before: ({ x, y }, inner) => {
        const edge = (values) => trials.map((k, i) => `${x(k)} ${y(values[i])}`);
        inner.append(svg("path", { class: "band", d: `M${[...edge(curve.high), ...edge(curve.low).reverse()].join("L")}Z` }));
      },
      after: ({ root, x, y, high }) => {
        const third = Math.min(3, end);
        root.append(svg("text", { class: "halo", x: x(third) + 8, y: y(curve.expected[third - 1]) - 4 }, "SGD, random search"));
        for (const size of sizes) {
          const k = curve.caught_up_by_batch[size];
          if (k !== null) root.append(svg("circle", { class: "meet", r: 3.5, cx: x(k), cy: y(curve.ducb[size]) }));
        }
        const k = curve.caught_up;
        if (k === null) return;
        root.append(svg("line", { class: "moment", x1: x(k), x2: x(k), y1: y(curve.one_run), y2: high }));
        root.append(svg("circle", { class: "meet main", r: 5, cx: x(k), cy: y(curve.one_run) }));
        root.append(svg("text", { class: "halo strong", x: x(k) + 2, y: y(curve.one_run) - 12, "text-anchor": "middle" }, `k = ${k}`));
      },
    }));
    figure.append(tuningSentence(curve, format, cut));
  }
}

const reached = (k) => (k === null ? "no number of trainings gets there" : `matched by the best of ${count(k, "training")}`);

function tuningSentence(curve, format, cut) {
  const all = curve.expected.length;
  const first = curve.caught_up === null
    ? ["One DUCB run gets ", html("b", null, format(curve.one_run)), " (the median over batch sizes). A random search ", html("b", null, "never"), ` matches it: the best of all ${all} settings of SGD has ${format(curve.expected.at(-1))}.`]
    : ["One DUCB run gets ", html("b", null, format(curve.one_run)), " (the median over batch sizes). A random search needs ", html("b", null, count(curve.caught_up, "training")), ` of SGD, of ${all} settings, to match it on average.`];
  const each = Object.entries(curve.caught_up_by_batch).sort((a, b) => a[0] - b[0]).map(([size, k]) => `${size}: ${k ?? "never"}`);
  const more = curve.expected[0] > cut ? ` A single training has ${format(curve.expected[0])} on average, above the chart.` : "";
  return html("p", { class: "caption" }, first, ` By batch size of DUCB: ${each.join(", ")}.${more}`);
}

// ---- What the bandit chose.

const HEAT_FLOOR = 0.001; // below this a share counts as next to none
const LEVELS = 24;
/** 0 … 1: nearly logarithmic, so that rare rates stay visible. */
const heat = (share) => Math.log1p(Math.max(0, share) / HEAT_FLOOR) / Math.log1p(1 / HEAT_FLOOR);
const ofColour = (t) => (t < 0.5
  ? `color-mix(in oklab, var(--heat-mid) ${(t * 200).toFixed(0)}%, var(--heat-low))`
  : `color-mix(in oklab, var(--heat-high) ${(t * 200 - 100).toFixed(0)}%, var(--heat-mid))`);

function choiceCharts() {
  const host = $("choice-charts");
  const { rates, share, trials } = data.choices;
  const sizes = Object.keys(share).sort((a, b) => a - b);
  if (sizes.length && rates.length) {
    $("heat-legend").append(heatLegend());
    for (const size of sizes) {
      const figure = html("figure", null, html("h3", null, `Batch size ${size}`));
      host.append(figure);
      responsive(drawn(figure), (chart) => heatMap(chart, size, share[size], rates));
    }
  } else host.append(none("There are no records of which rate was taken, so there is nothing to show of what the bandit chose."));
  const timed = Object.keys(trials).sort((a, b) => a - b).filter((size) => trials[size].mean.some(known));
  if (!timed.length) return host.append(none("There are no runs of DUCB, so there are no trials to count."));
  const lines = timed.map((size, i) => ({ id: size, name: `DUCB, batch ${size}`, cls: `step${i % 5}`, xs: trials[size].epoch, ys: trials[size].mean, end: size }));
  const figure = html("figure", null, html("h3", null, "Trials per step, all batch sizes"));
  host.append(figure);
  responsive(drawn(figure), (chart) => lineChart(chart, {
    lines, height: 296, right: 44, left: 40, label: "Trials per step against epochs", onPoint: (id) => highlight(chart, id),
    x: { tick: number, title: "epoch" }, y: { format: number, tick: number, title: "Trials per step" },
  }));
}

function heatLegend() {
  const bar = svg("svg", { viewBox: "0 0 300 34", width: 300, height: 34, role: "img", "aria-label": "Colour scale from no steps to all steps" });
  for (let i = 0; i < LEVELS; i++) {
    bar.append(svg("rect", { x: 20 + (i * 250) / LEVELS, width: 250 / LEVELS + 0.5, height: 12, style: `fill:${ofColour(i / (LEVELS - 1))}` }));
  }
  for (const share of [0, 0.01, 0.1, 1]) {
    bar.append(svg("text", { class: "small", x: 20 + heat(share) * 250, y: 28, "text-anchor": "middle" }, shortPercent(share)));
  }
  return html("p", { class: "quiet" }, "Share of an epoch’s steps", bar);
}

function heatMap(host, size, { epoch, arms }, rates) {
  const [left, top, cell, gap] = [46, 4, 7.4, 6];
  const width = Math.max(host.clientWidth, 200);
  const high = top + cell * rates.length;
  const column = (width - left - 4) / epoch.length;
  const rows = rates.length;
  const height = high + gap + cell + 36;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-label": `Rates chosen at batch size ${size}, by epoch; arrow keys read the cells` });
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
      if (share > 1e-5) paths[Math.max(2, Math.round(heat(share) * (LEVELS - 1)))].push(`M${(left + i * column).toFixed(2)} ${yOf(row).toFixed(2)}h${(column + 0.3).toFixed(2)}v${cell}h${(-column - 0.3).toFixed(2)}z`);
    }
  });
  paths.forEach((parts, level) => {
    if (parts.length) root.append(svg("path", { d: parts.join(""), style: `fill:${ofColour(level / (LEVELS - 1))}` }));
  });
  const every = Math.max(1, Math.round((rows - 1) / 4));
  for (let row = 0; row < rows; row += every) {
    root.append(svg("text", { x: left - 7, y: yOf(row) + cell / 2 + 4, "text-anchor": "end" }, powerOfTen(rates[row])));
  }
  root.append(svg("text", { x: left - 7, y: yOf(rows) + cell / 2 + 4, "text-anchor": "end" }, "none"));
  const marked = epoch.map((value, i) => ({ value, i })).filter(({ value, i }) => i === 0 || i === epoch.length - 1 || value % 100 === 0);
  for (const { value, i } of marked) {
    root.append(svg("text", { x: left + (i + 0.5) * column, y: height - 19, "text-anchor": i === epoch.length - 1 ? "end" : "middle" }, String(value)));
  }
  root.append(svg("text", { x: width - 4, y: height - 4, "text-anchor": "end" }, "epoch"));
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
      return { i: Math.min(epoch.length - 1, Math.max(0, item.i + di)), row: Math.min(rows, Math.max(0, item.row + drow)) };
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
      return { x: x + column, y: y + cell / 2, content: [html("b", null, where), `${sentenceCase(what)}: ${value}`], text: `${where}, ${what}, ${value}` };
    },
  });
  host.replaceChildren(root);
}

// ---- Figure 2.

function clockCharts() {
  const host = $("clock-charts");
  const runs = data.singles;
  if (!runs.length) return host.append(none(whyMissing("Figure 2", "There are no single runs against the clock, so there is no Figure 2.")));
  const charts = html("div", { class: "grid two" });
  host.append(html("p", null, "Runs that had a machine to themselves, so that seconds mean something. ", html("span", { class: "screen-only" }, "Point at a line or at a name to see one run in all four panels.")),
    html("ul", { class: "legend" }, runs.map((run) => {
      const button = html("button", { type: "button", class: classOf(run.algorithm), "data-line": run.run }, run.label);
      for (const event of ["pointerenter", "focus"]) button.addEventListener(event, () => highlight(host, run.run));
      for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => highlight(host, null));
      return html("li", null, button);
    })), charts);
  for (const measure of ["error", "nll", "rate", "norm"]) {
    const { title, format, tick } = MEASURES[measure];
    const lines = runs.filter((run) => run[measure].some(known)).map((run) => ({
      id: run.run, name: run.label, cls: `${classOf(run.algorithm)} dashes`, xs: run.seconds, ys: run[measure],
    }));
    const figure = html("figure", null, html("h3", null, title));
    charts.append(figure);
    if (!lines.length) {
      figure.append(none(`None of these runs has a ${title.toLowerCase()} on record.`));
      continue;
    }
    responsive(drawn(figure), (chart) => lineChart(chart, {
      lines, height: 280, label: `${title} against seconds`, onPoint: (id) => highlight(host, id),
      x: { log: true, tick: powerOfTen, title: "seconds", name: "second" }, y: { log: true, format, tick, title },
    }));
    const without = runs.length - lines.length;
    if (without) figure.append(html("p", { class: "caption" }, `${count(without, "run")} not drawn: no ${title.toLowerCase()} on record.`));
  }
}

// ---- Tables, claims, provenance.

function tables() {
  if (!data.tables.length) return $("table-list").append(none(whyMissing("Tables 1", "There are no timings of single runs, so there are no Tables 1 and 2.")));
  for (const { title, headings, rows } of data.tables) {
    $("table-list").append(html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, html("table", { class: "numbers" },
      html("caption", null, title), html("thead", null, html("tr", null, headings.map((text) => html("th", { scope: "col" }, text)))),
      html("tbody", null, rows.map((row) => html("tr", null, row.map((text) => html("td", null, text))))))));
  }
}

const BADGES = { reproduced: ["yes", "✓"], "partly reproduced": ["part", "◐"], "not reproduced": ["no", "✕"] };

function claims() {
  if (!data.claims.length) return $("claim-list").append(none("No claims were judged."));
  const rows = data.claims.map((claim) => {
    const [cls, symbol] = BADGES[claim.verdict] ?? ["unknown", "–"];
    const badge = html("span", { class: `badge ${cls}` }, html("span", { "aria-hidden": "true" }, symbol), claim.verdict ?? "no verdict");
    const rule = html("details", null, html("summary", null, "The rule"), html("p", null, `${sentenceCase(pretty(claim.rule))}.`));
    const ours = claim.verdict ? claim.ours : claim.ours.replace(/^no verdict: /, "");
    return html("tr", null, html("td", null, String(claim.number)), html("td", null, pretty(claim.claim), rule),
      html("td", { "data-name": "Paper" }, pretty(claim.paper)), html("td", { "data-name": "Here" }, sentenceCase(pretty(ours))), html("td", null, badge));
  });
  $("claim-list").append(html("table", { class: "verdicts" }, html("thead", null, html("tr", null,
    ["", "Claim", "Paper", "Here", "Verdict"].map((text) => html("th", { scope: "col" }, text)))), html("tbody", null, rows)));
}

function origin() {
  const { devices, precisions, versions, dates, minutes, units, runs, commands } = data.origin;
  if (!units) return $("origin-list").append(html("p", null, provenance()));
  const entries = [["Runs", `${count(runs, "run")} in ${count(units, "unit")}`], ["Devices", devices.join(", ")], ["Precision", precisions.join(", ")], ["Versions", versions.join(", ")],
    ["Dates", dates.join(", ")], ["Duration", `${minutes.toFixed(1)} minutes, evaluations included`], ["Commands", commands.map((command) => html("code", null, command))]];
  $("origin-list").append(html("dl", null, entries.filter(([, value]) => value.length).flatMap(([name, value]) => [html("dt", null, name), html("dd", null, value)])));
}

for (const section of [header, figure1, tuningCharts, choiceCharts, clockCharts, tables, claims, origin]) section();
})();
