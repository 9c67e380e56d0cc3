// The answers with which a page opens: how many cases end how, and which. Joined to plot.js.

const OUTCOMES = { reproduced: "good", "partly reproduced": "part", "not reproduced": "bad" };
const CROWDED = 9; // cases that are a list; more are words in a row

function answers() {
  const told = [...(data.answers ?? []), ...(data.benchmark?.answers ?? [])];
  $("answers").append(...told.map(answer));
}

function answer({ question, place, groups, note, grid }) {
  const all = groups.reduce((sum, { cases }) => sum + cases.length, 0);
  const strip = groups.filter(({ cases }) => cases.length).map(({ sign, cases }) =>
    html("i", { class: sign, style: `flex-grow:${cases.length}` }));
  const title = `answer-${place}`;
  const crowd = groups.some(({ cases }) => cases.length > CROWDED);
  return html("section", { class: "answer", "aria-labelledby": title },
    html("h2", { id: title }, html("a", { href: `#${place}` }, question)),
    html("div", { class: "strip", "aria-hidden": "true" }, strip),
    html("div", { class: "outcomes" }, groups.map((group) => outcome(group, all, crowd))),
    note ? html("p", { class: "caption" }, rich(pretty(note))) : null, grid?.rows.length ? gridTable(grid) : null);
}

function outcome({ outcome: name, sign, cases }, all, crowd) {
  const head = html("h3", null, html("b", null, html("span", { "aria-hidden": "true" }, OUTCOME_SIGNS[sign]),
    String(cases.length)), html("span", null, `of ${all} ${name}`));
  const items = cases.map((one) => html("li", null, crowd ? [`${one.text} `, html("small", null, one.detail)] : caseOf(one)));
  return html("div", { class: `outcome ${sign}` }, head,
    cases.length ? html("ul", { class: crowd ? "crowd" : null }, items) : html("p", { class: "quiet" }, "None."));
}

function caseOf({ text, detail, doubt, weight }) {
  const bar = weight ? html("i", { style: `width:${Math.max(2, Math.round(100 * weight))}%` }) : null;
  const more = detail ? html("p", null, rich(sentenceCase(pretty(detail))), doubt ? html("small", null, `; ${doubt}`) : null) : null;
  return [html("span", null, rich(pretty(text))), bar, more];
}
