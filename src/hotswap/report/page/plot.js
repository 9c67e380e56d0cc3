// What every figure of the page is drawn with: elements, numbers as text, axes, lines, labels, tooltips.

const data = JSON.parse(document.getElementById("data").textContent);
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const unique = (values) => [...new Set(values)];
const last = data.epochs.at(-1);

// ---- Algorithms: what the data say of how each is called and drawn. Styles know them by number, never by name.

const algorithms = Object.keys(data.algorithms);
const lookOf = (algorithm) => data.algorithms[algorithm];
const nameOf = (algorithm) => lookOf(algorithm).label;
const classOf = (algorithm) => {
  const { many, dashes } = lookOf(algorithm);
  return `algorithm${algorithms.indexOf(algorithm)} ${dashes}${many ? " many" : ""}`;
};
/** Give the classes `name0`, `name1`, ... the colours of these looks, on white and on dark. */
function paint(name, looks) {
  const colour = (value) => (CSS.supports("color", value) ? value : "currentcolor");
  const each = (text) => looks.map((look, i) => text(`${name}${i}`, look)).join(" ");
  document.head.append(Object.assign(document.createElement("style"), { textContent: [
    `:root { ${each((id, look) => `--${id}: ${colour(look.colour)};`)} }`,
    `@media screen and (prefers-color-scheme: dark) { :root { ${each((id, look) => `--${id}: ${colour(look.dark)};`)} } }`,
    each((id) => `.${id} { --c: var(--${id}); }`),
  ].join("\n") }));
}
paint("algorithm", algorithms.map(lookOf));

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
const each = (tag, texts) => texts.map((text) => html(tag, null, text));
const words = (x, y, text, anchor, cls) => svg("text", { x, y, "text-anchor": anchor, class: cls }, text);

/** Words between backticks become code. */
const rich = (text) => text.split("`").map((part, i) => (i % 2 ? html("code", null, part) : part));
const none = (sentence) => html("p", { class: "none" }, rich(sentence));
const plotIn = (host) => host.appendChild(html("div", { class: "plot" }));
/** A figure with a title, to be filled. */
const figureIn = (host, title) => host.appendChild(html("figure", null, html("h3", null, title)));
const heads = (texts) => html("thead", null, html("tr", null, texts.map((text) => html("th", { scope: "col" }, text))));
/** A table that scrolls within itself where the screen is narrow. */
const scrolled = (title, table) => html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, table);
const OUTCOME_SIGNS = { good: "✓", part: "◐", even: "=", bad: "✕", unknown: "–" };
const outcomeOf = (cell) => Object.keys(OUTCOME_SIGNS).find((name) => cell.replace(/\?$/, "").endsWith(` ${OUTCOME_SIGNS[name]}`));
/** A table that came ready: its first columns, so many as `left` says, hold words, the others numbers. */
function gridTable({ title, headings, rows, left }) {
  const cells = (tag, texts) => html("tr", null, texts.map((text, i) =>
    html(tag, { class: i < left ? "word" : outcomeOf(text), scope: tag === "th" ? "col" : null }, rich(pretty(text)))));
  return scrolled(title, html("table", { class: "numbers" }, html("caption", null, html("span", null, rich(title))),
    html("thead", null, cells("th", headings)), html("tbody", null, rows.map((row) => cells("td", row)))));
}

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

/** Two digits or so, and never more than fit into a cell. */
function short(ratio) {
  if (ratio >= 9.95) return ratio < 999.5 ? ratio.toFixed(0) : ratio.toExponential(0).replace("+", "");
  return ratio >= 0.95 ? ratio.toFixed(1) : (ratio >= 0.0095 ? ratio.toFixed(2) : ratio.toExponential(0));
}

/** How dark a cell is: the distance of a ratio from 1, as far as `most` times that. */
function tint(ratio, most = 10) {
  if (!known(ratio)) return null;
  const far = Math.min(1, Math.abs(Math.log(Math.max(ratio, 1 / most))) / Math.log(most));
  return `background:color-mix(in oklab, var(${ratio < 1 ? "--lower" : "--higher"}) ${Math.round(70 * far)}%, var(--page))`;
}

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
      words(left - 8, at(value) + 4, axis.tick(value), "end"),
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
    if (own || at < wide - 7 * x.title.length - 14) root.append(words(at, high + 17, x.tick(value), "middle"));
  }
  root.append(words(wide, own ? height - 4 : high + 17, x.title, "end"));
  if (y.heading) root.append(words(0, 12, y.heading));
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
  if (tipAt && host.contains(tipAt.root)) hideTip(); // what it points at is about to go, and cannot lose its focus
  kept.width = host.clientWidth;
  kept.draw(host);
}
function responsive(host, draw) {
  redraws.set(host, { draw, width: host.clientWidth });
  draw(host);
  watcher.observe(host);
  return host;
}
const opened = new Set(); // what the reader had open before printing opened all
function forPaper(on) {
  document.documentElement.classList.toggle("paper", on);
  for (const details of document.querySelectorAll("details")) {
    if (on && details.open) opened.add(details);
    details.open = on || opened.has(details);
  }
  if (!on) opened.clear();
  for (const [host, kept] of redraws) if (host.isConnected) redraw(host, kept);
}
addEventListener("beforeprint", () => forPaper(true));
addEventListener("afterprint", () => forPaper(false));

// ---- Pointing: one way for pointer and keyboard, one tooltip.

const tip = $("tip");
let tipAt = null;
addEventListener("scroll", () => { if (tipAt) placeTip(); }, { passive: true });

function hideTip() {
  tip.hidden = true;
  tipAt = null;
}

function showTip(root, { x, y, content }) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  tipAt = { root, x, y };
  placeTip();
}

function placeTip() {
  const { root, x, y } = tipAt;
  const box = root.getBoundingClientRect();
  const zoom = box.width / root.viewBox.baseVal.width;
  const [left, top] = [box.left + x * zoom, box.top + y * zoom];
  const { width, height } = tip.getBoundingClientRect();
  const beside = left + 16 + width < innerWidth - 8 ? left + 16 : left - 16 - width;
  tip.style.left = `${Math.min(Math.max(8, beside), innerWidth - width - 8)}px`;
  tip.style.top = `${Math.min(Math.max(8, top - height / 2), innerHeight - height - 8)}px`;
}
const say = (text) => { $("live").textContent = text; };

/** `pick(x, y)` and `step(item, key)` find an item; `show(item)` marks it, or none, and returns what the tip says. */
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
  const [x0, y0, width, height] = [left - 3, top - 3, wide - left + 6, high - top + 6];
  const inner = svg("svg", { x: x0, y: y0, width, height, viewBox: `${x0} ${y0} ${width} ${height}` });
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
    const [only, more] = dots[at].filter(Boolean);
    if (only && !more) inner.append(svg("circle", { class: `bead ${line.cls}`, r: 3.5, cx: only[0], cy: only[1] }));
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

/** None at all where there are more lines than room for labels; the tooltip tells their names. */
function endLabels({ root, top, wide, high }, lines, dots) {
  const labels = lines.map((line, at) => ({ line, at: dots[at].findLast(Boolean) }))
    .filter(({ line, at }) => line.end && at).sort((a, b) => a.at[1] - b.at[1]);
  if (labels.length * 13 > high - top + 26) return;
  const spots = labels.map(({ at }) => at[1]);
  for (let i = 1; i < spots.length; i++) spots[i] = Math.max(spots[i], spots[i - 1] + 13);
  // As much up as down: labels stay about where their lines end.
  const middle = spots.reduce((sum, spot, i) => sum + spot - labels[i].at[1], 0) / (spots.length || 1);
  const shift = Math.max(middle, (spots.at(-1) ?? 0) - high); // and none below the axis
  uncross(labels, (i) => [wide + 10, spots[i] - shift]);
  labels.forEach(({ line, at }, i) => {
    const spot = spots[i] - shift;
    root.append(
      svg("path", { class: `leader ${line.cls}`, d: `M${at[0]} ${at[1]}L${wide + 10} ${spot}`, "data-line": line.id }),
      svg("circle", { class: `tail ${line.cls}`, r: 2.2, cx: at[0], cy: at[1], "data-line": line.id }),
      svg("text", { class: `end ${line.cls}`, x: wide + 13, y: spot + 4, "data-line": line.id }, line.end),
    );
  });
}

/** Exchange labels whose leaders cross, until none do: each exchange makes the leaders shorter, so that it ends. */
function uncross(labels, spotOf) {
  const side = (a, b, c) => Math.sign((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]));
  const cross = (a, b, c, d) => side(a, b, c) * side(a, b, d) < 0 && side(c, d, a) * side(c, d, b) < 0;
  for (let changed = true; changed;) {
    changed = false;
    for (let i = 0; i < labels.length; i++) {
      for (let j = i + 1; j < labels.length; j++) {
        if (!cross(labels[i].at, spotOf(i), labels[j].at, spotOf(j))) continue;
        [labels[i], labels[j]] = [labels[j], labels[i]];
        changed = true;
      }
    }
  }
}

/** Pointing at an element, with pointer or keyboard, is pointing at the lines of this name within a scope. */
function pointing(element, scope, id) {
  for (const event of ["pointerenter", "focus"]) element.addEventListener(event, () => highlight(scope, id));
  for (const event of ["pointerleave", "blur"]) element.addEventListener(event, () => highlight(scope, null));
  return element;
}

/** Radio buttons or checkboxes with a heading; returns the inputs. */
function choices(host, heading, type, entries, change) {
  const labels = entries.map(({ value, text = String(value), on = true, icon }) => {
    const input = html("input", { type, name: heading, value, checked: on });
    input.addEventListener("change", () => change(value, input.checked));
    return html("label", null, input, html("span", null, icon, text));
  });
  host.append(html("fieldset", null, html("legend", null, heading), labels));
  return labels.map((label) => label.firstChild);
}

function highlight(scope, id) {
  for (const part of scope.querySelectorAll("[data-line]")) {
    part.classList.toggle("dim", id !== null && part.dataset.line !== id);
    part.classList.toggle("lifted", part.dataset.line === id);
  }
}
