// The matrix: rows are samples, columns are judges under each question, and people. Filtered, sorted and drawn from data
// that stands in rows.js or compare.js; of a large run first.js has the first rows, to be looked at until all have come.
// Only rows in view are in the page, so that thousands stay fluent. Text becomes
// text nodes and nothing else; there is no innerHTML here.
"use strict";
(() => {
  const form = document.getElementById("filters");
  const table = document.getElementById("table");
  const view = document.getElementById("window");
  const found = document.getElementById("found");
  const further = document.querySelector("details.further");
  const MOST = 3; // answers in a cell; the sample's page has all
  const MORE_ROWS = 6; // drawn above and below what is seen
  const FEW_ROWS = 40; // scrolled with the page; more have a window of their own
  const WIDEST = 8; // em of a label's word that a column has room for
  const ANCHORS = ["#samples", "#main", "#summary", "#statistics"];
  const READING = "Reading all samples…";
  const SVG = "http://www.w3.org/2000/svg";
  let data, columns, shown = [], drawn = new Map(), height = 84, first = -1, last = -1;

  const make = (tag, props = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), props);
    element.append(...children);
    return element;
  };
  const draw = (tag, attributes, ...children) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const count = (n) => n.toLocaleString("en");
  const differ = (row) => (row.human === null && row.spread === null ? null : Math.max(row.human ?? 0, row.spread ?? 0));

  // What the data says: columns with something in them, each row's cells, and the text that a search looks in.
  function take(text) {
    data = typeof text === "string" ? JSON.parse(text) : text;
    const judges = new Map(data.questions.map((question) => [question.id, new Set()]));
    for (const row of data.rows) {
      for (const [id, chips] of Object.entries(row.answers)) for (const chip of chips) judges.get(id).add(chip.by ?? -1);
      for (const id of Object.keys(row.people)) judges.get(id)?.add("people");
      row.hay = `${row.id} ${row.text} ${row.editor} ${row.type}`.toLowerCase();
    }
    columns = data.questions.flatMap((question) =>
      [...judges.get(question.id)].sort((a, b) => (a === "people") - (b === "people") || a - b).map((judge) => {
        const own = data.judges[judge === -1 && data.judges.length === 1 ? 0 : judge];
        const name = judge === "people" ? "people" : own?.name ?? "score";
        return { question, judge, name, title: own?.title ?? name, key: `${question.id}@${name}` };
      }));
    for (const row of data.rows) {
      row.cells = columns.map(({ question, judge }) =>
        judge === "people" ? row.people[question.id] || [] : (row.answers[question.id] || []).filter((chip) => (chip.by ?? -1) === judge));
    }
    drawn = new Map();
  }

  // --- filters ---

  const fields = () => Object.fromEntries([...new FormData(form)].filter(([, value]) => value));

  function offer() {
    const box = document.getElementById("further");
    for (const question of data.questions) {
      if (!question.labels.length || form.elements[`label.${question.id}`]) continue;
      const select = make("select", { name: `label.${question.id}`, ariaLabel: question.short }, make("option", { value: "", textContent: "any" }));
      const words = make("span", { textContent: question.short, title: question.metric ? question.name : `${question.name}, an intermediate question` });
      const label = make("label", {}, words, select);
      if (question.metric) form.querySelector("details.further").before(label); else box.append(label);
    }
    const unique = (of) => [...new Set(data.rows.map(of).filter(Boolean))].sort((a, b) => a.localeCompare(b));
    const fill = (field, values, least = 1) => {
      const select = form.elements[field];
      const chosen = select.value;
      select.replaceChildren(select.options[0], ...values.map((value) => make("option", { value, textContent: value })));
      select.value = chosen;
      select.closest("label").hidden = values.length < least;
    };
    const given = new Set(data.rows.flatMap((row) => Object.values(row.answers).flat().map((chip) => chip.status)));
    for (const row of data.rows) if (row.running) given.add("running");
    for (const question of data.questions) if (question.labels.length) fill(`label.${question.id}`, question.labels);
    fill("judge", [...new Set(columns.map((column) => column.name))], 2);
    fill("status", [...data.statuses, "running"].filter((status) => given.has(status)));
    fill("type", unique((row) => row.type));
    fill("editor", unique((row) => row.editor));
    form.elements.area.closest("label").hidden = data.rows.every((row) => row.area === null);
    form.elements.differ.closest("label").hidden = data.rows.every((row) => differ(row) === null);
  }

  function test(wanted) {
    const tests = [];
    if (wanted.q) {
      const words = wanted.q.toLowerCase().split(/\s+/).filter(Boolean);
      tests.push((row) => words.every((word) => row.hay.includes(word)));
    }
    // A label or a status is looked for in the cells of the chosen judge, else of everybody but people.
    const own = columns.map((column, at) => [column, at]).filter(([column]) => (wanted.judge ? column.name === wanted.judge : column.judge !== "people"));
    for (const [field, value] of Object.entries(wanted)) {
      if (!field.startsWith("label.")) continue;
      const cells = own.filter(([column]) => column.question.id === field.slice(6)).map(([, at]) => at);
      tests.push((row) => cells.some((at) => row.cells[at].some((chip) => chip.status === "ok" && chip.name === value)));
    }
    if (wanted.status === "running") tests.push((row) => row.running > 0);
    else if (wanted.status) tests.push((row) => own.some(([, at]) => row.cells[at].some((chip) => chip.status === wanted.status)));
    if (wanted.type) tests.push((row) => row.type === wanted.type);
    if (wanted.editor) tests.push((row) => row.editor === wanted.editor);
    if (wanted.area === "none") tests.push((row) => row.area === null);
    else if (wanted.area) {
      const [low, high] = wanted.area.split("-").map(Number);
      tests.push((row) => row.area !== null && row.area >= low && row.area < high);
    }
    if (wanted.differ === "human") tests.push((row) => row.human > 0);
    if (wanted.differ === "judges") tests.push((row) => row.spread > 0);
    if (wanted.differ === "agree") tests.push((row) => differ(row) === 0);
    return (row) => tests.every((one) => one(row));
  }

  function value(row, by) {
    if (by === "failed") return row.failed || null;
    const at = columns.findIndex((column) => `label.${column.key}` === by);
    if (at < 0) return row[by] ?? null;
    const values = row.cells[at].map((chip) => chip.value).filter((v) => v !== null);
    return values.length ? Math.min(...values) : null;
  }

  // Disagreement of the kind that is filtered for. Of equal ones, those come first that are apart on more questions, then
  // by more in all, then by name, as in `editloupe compare`.
  const key = (row) => (row.editor ? `${row.editor}/${row.id}` : row.id);
  const kind = () => ({ judges: (row) => row.spread, human: (row) => row.human })[form.elements.differ.value] ?? differ;
  const all = (row) => Object.values(row.apart).filter((n) => n > 0);
  const moreApart = (a, b) => all(a).length - all(b).length || all(a).reduce((n, m) => n + m, 0) - all(b).reduce((n, m) => n + m, 0);

  function sorted(rows, sort) {
    if (!sort) return rows;
    const [by, sign] = sort.startsWith("-") ? [sort.slice(1), -1] : [sort, 1];
    const gap = kind();
    const keyed = rows.map((row, at) => [by === "differ" ? gap(row) : value(row, by), at, row]);
    const none = (v) => v === null || v === "";
    // What has no value stands last, whichever way the rest is sorted.
    const words = new Intl.Collator(undefined, { numeric: true });
    const tied = (one, other) => (by === "differ" ? sign * moreApart(one, other) || (key(one) < key(other) ? -1 : 1) : 0);
    keyed.sort(([a, i, one], [b, j, other]) => none(a) - none(b) || (none(a) ? 0 : sign * (typeof a === "number" ? a - b : words.compare(a, b))) || tied(one, other) || i - j);
    return keyed.map(([, , row]) => row);
  }

  // --- the table ---

  function head() {
    const groups = data.questions.map((question) => columns.filter((column) => column.question === question)).filter((own) => own.length);
    const two = columns.some((column, at) => column.judge === "people" || columns[at + 1]?.question === column.question);
    const sortable = (words, by, title = "") => make("button", { type: "button", textContent: words, title: title || words, value: by });
    const cell = (child, props = {}) => make("th", { scope: "col", rowSpan: two ? 2 : 1, ...props }, child);
    const { apart: gap, spent } = tail;
    const top = make("tr", {}, cell("Before, after", { className: "pair" }), cell(sortable("Sample", "id"), { className: "name" }));
    if (gap) top.append(cell(sortable(gap.words, gap.by, gap.title), { className: "number" }));
    const below = make("tr");
    for (const own of groups) {
      const { question } = own[0];
      const title = question.metric ? question.name : `${question.name}, an intermediate question`;
      const names = two ? own.map((column) => make("th", { scope: "col", className: "of" }, sortable(column.name, `label.${column.key}`, `${question.short}: ${column.title}`))) : [];
      if (names.length) names[0].classList.add("begin");
      top.append(two
        ? make("th", { scope: "colgroup", colSpan: own.length, className: "asked begin", title, textContent: question.short })
        : cell(sortable(question.short, `label.${own[0].key}`, title), { className: `of begin${question.metric ? "" : " dim"}` }));
      below.append(...names);
    }
    if (spent.length) top.append(cell(make("span", { className: "spent" }, ...spent.map(({ words, by, title }) => sortable(words, by, title))), { className: "number begin" }));
    const col = (className) => make("col", { className });
    const cols = make("colgroup", {}, col("c-pair"), col("c-name"), ...(gap ? [col("c-differ")] : []), ...columns.map(() => col("c-cell")), ...(spent.length ? [col("c-spent")] : []));
    const body = make("tbody");
    const part = make("thead", {}, top, ...(two ? [below] : []));
    const space = () => make("tbody", { className: "space", ariaHidden: "true" }, make("tr", {}, make("td", { colSpan: cols.children.length })));
    table.replaceChildren(cols, part, space(), body, space());
    table.style.setProperty("--columns", columns.length);
    table.style.setProperty("--word", widest(columns.flatMap((column) => column.question.labels)).toFixed(2));
    table.classList.toggle("with-differ", Boolean(gap));
    table.classList.toggle("with-spent", spent.length > 0);
  }

  // The width in em of the longest word of some labels.
  function widest(labels) {
    const pen = make("canvas").getContext("2d");
    pen.font = `100px ${getComputedStyle(document.body).fontFamily}`;
    const words = labels.flatMap((label) => label.split(/[\s_-]+/));
    return Math.min(WIDEST, Math.max(0, ...words.map((word) => pen.measureText(word).width / 100)));
  }

  // One scroll bar, that of the page, where there are few rows and the table is not wider than its window.
  function frame() {
    document.documentElement.style.setProperty("--top", `${document.querySelector(".top").offsetHeight}px`);
    view.classList.toggle("whole", (data.of ?? shown.length) <= FEW_ROWS && table.scrollWidth <= view.clientWidth);
  }

  // The columns beside the judges' own: how far they are apart, and what a sample took. What says nothing of any sample is left out.
  function ends() {
    const gap = { words: "Differ", by: "differ", title: "Disagreement, 0 to 100: the largest distance on one question between judges, repeats and people" };
    const all = [
      { words: "Cost", by: "cost", title: "USD of all verdicts whose judge has a known price", of: (row) => (row.cost === null ? "" : `$${row.cost.toPrecision(2)}`) },
      { words: "Time", by: "seconds", title: "Time of all verdicts", of: (row) => (row.seconds ? duration(row.seconds) : "") },
      { words: "Turns", by: "turns", title: "Turns with tool calls, over all verdicts", of: (row) => (row.turns ? `${row.turns} ${row.turns === 1 ? "turn" : "turns"}` : "") },
    ];
    return { apart: data.rows.some((row) => differ(row) !== null) ? gap : null, spent: all.filter(({ of }) => data.rows.some((row) => of(row) !== "")) };
  }

  const duration = (seconds) => (seconds < 90 ? `${seconds.toFixed(seconds < 10 ? 1 : 0)} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`);

  function apart(row) {
    const lines = Object.entries(row.apart).filter(([, n]) => n > 0).sort(([, a], [, b]) => b - a).slice(0, 2)
      .map(([id, n]) => make("span", {}, make("strong", { textContent: n.toFixed(0) }), ` ${data.questions.find((q) => q.id === id).short}`));
    if (row.human > 0) lines.push(make("span", { title: "between people and a judge" }, make("strong", { textContent: row.human.toFixed(0) }), " people"));
    return lines.length ? make("span", { className: "apart" }, ...lines) : differ(row) === null ? "" : "0";
  }

  function chip(label) {
    // A status such as backend_failed breaks behind its underscores.
    const words = (label.scope ? `${label.scope}: ${label.name}` : label.name).split(/(?<=_)/).flatMap((word, n) => (n ? [make("wbr"), word] : [word]));
    const made = make("span", { className: "chip" }, make("span", { className: `dot ${label.tone}` }), ...words);
    made.title = [label.scope, label.name, label.rater && `by ${label.rater}`].filter(Boolean).join(", ");
    return made;
  }

  function line(row) {
    const at = row.at ?? "";
    const pair = make("span");
    for (const [n, word] of ["Source", "Edited"].entries()) {
      const thumb = row.thumbs[n];
      const src = row.near ? `${at}near/${row.slug}/${n}.jpg` : `${at}thumbs/${thumb?.slice(0, 2)}/${thumb}`;
      if (thumb) pair.append(make("img", { src, loading: "lazy", alt: `${word}, ${row.id}`, width: 72, height: 72 }));
      else pair.append(make("span", { className: "none", textContent: thumb === "" ? "not kept" : "none" }));
    }
    const text = make("p", { textContent: row.text, title: row.text });
    text.dir = "auto";
    const area = row.area === null ? "" : `target ${row.area < 10 ? row.area.toFixed(2) : row.area.toFixed(0)} %`;
    const facts = make("p", { className: "facts-line", textContent: [row.type, row.editor, area].filter(Boolean).join(" · ") });
    const name = make("td", { className: "name" }, make("a", { href: `${at}samples/${row.slug}.html`, textContent: row.id, title: row.id }), text, facts);
    const made = make("tr", { className: "sample" }, make("td", { className: "pair" }, pair), name);
    const end = (words, className, ...children) => {
      const cell = make("td", { className: `number${className}` }, ...children);
      cell.dataset.name = words;
      if (!cell.textContent) cell.classList.add("empty");
      made.append(cell);
    };
    if (tail.apart) end(tail.apart.words, "", apart(row));
    for (const [n, column] of columns.entries()) {
      const chips = row.cells[n];
      const labels = chips.slice(0, chips.length > MOST ? MOST - 1 : MOST).map(chip);
      if (chips.length > MOST) labels.push(make("span", { className: "chip dim", textContent: `and ${chips.length - MOST + 1} more` }));
      if (!labels.length && row.running && column.judge !== "people") labels.push(make("span", { className: "chip dim", textContent: "running…" }));
      const begin = columns[n - 1]?.question !== column.question;
      const tone = chips.length ? chips[0].tone : "";
      const cell = make("td", { className: `of ${tone}${begin ? " begin" : ""}${chips.length && row.apart[column.question.id] > 0 && column.judge !== "people" ? " differs" : ""}` });
      cell.dataset.name = data.judges.length > 1 || column.judge === "people" ? `${column.question.short}, ${column.name}` : column.question.short;
      const own = data.judges[column.judge]?.at;
      if (labels.length) cell.append(own !== undefined && own !== at ? make("a", { className: "labels", href: `${own}samples/${row.slug}.html` }, ...labels) : make("span", { className: "labels" }, ...labels));
      else cell.classList.add("empty");
      made.append(cell);
    }
    if (tail.spent.length) {
      const each = tail.spent.map(({ words, title, of }) => make("span", { title, textContent: of(row) }));
      end(tail.spent.map(({ words }) => words).join(", "), " begin", make("span", { className: "spent" }, ...each));
    }
    return made;
  }

  let tail;

  // Draws the rows in view; the space above and below is as high as the others would be.
  function paint(again = false) {
    const [above, body, below] = table.tBodies;
    above.hidden = below.hidden = false;
    const top = above.getBoundingClientRect().top;
    const frame = view.getBoundingClientRect();
    const from = Math.max(0, frame.top) - top;
    const till = Math.min(innerHeight, frame.bottom) - top;
    const step = 3;
    const begin = Math.max(0, Math.floor(Math.max(0, from) / height / step) * step - MORE_ROWS);
    const end = Math.min(shown.length, Math.ceil(till / height / step) * step + MORE_ROWS);
    if (!again && begin === first && end === last) return;
    [first, last] = [Math.min(begin, shown.length), Math.max(end, Math.min(begin, shown.length))];
    const rows = [];
    for (let n = first; n < last; n++) {
      let made = drawn.get(shown[n]);
      if (!made) drawn.set(shown[n], (made = line(shown[n])));
      made.ariaRowIndex = n + 2;
      rows.push(made);
    }
    body.replaceChildren(...rows);
    above.rows[0].cells[0].style.height = `${first * height}px`;
    below.rows[0].cells[0].style.height = `${((data.of ?? shown.length) - last) * height}px`;
    above.hidden = first === 0;
    below.hidden = last === (data.of ?? shown.length);
  }

  function measure() {
    const row = table.tBodies[1].rows[0];
    if (!row) return;
    const box = row.getBoundingClientRect();
    const next = row.nextElementSibling?.getBoundingClientRect();
    const now = next ? next.top - box.top : box.height;
    if (now > 0 && Math.abs(now - height) > 0.1) { height = now; paint(true); }
  }

  function render() {
    const wanted = fields();
    const { sort = "", ...filters } = wanted;
    shown = sorted(data.rows.filter(test(filters)), sort);
    first = last = -1;
    view.scrollTop = 0;
    frame();
    paint(true);
    measure();
    const many = count(data.rows.length);
    found.textContent = data.of ? READING : shown.length === data.rows.length ? `${many} samples` : `${count(shown.length)} of ${many} samples`;
    table.ariaRowCount = (data.of ?? shown.length) + 1;
    for (const button of table.tHead.querySelectorAll("button")) {
      const on = sort.replace(/^-/, "") === button.value;
      button.closest("th").ariaSort = on ? (sort.startsWith("-") ? "descending" : "ascending") : "none";
    }
    const more = Object.keys(filters).filter((name) => form.elements[name].closest("#further")).length;
    further.querySelector("summary").textContent = more ? `More filters (${more})` : "More filters";
    const query = new URLSearchParams(wanted).toString();
    if (query !== location.hash.slice(1)) history.replaceState(null, "", query ? `#${query}` : location.pathname + location.search);
  }

  // The sample pages step through what is listed here, in this order.
  function keep() {
    const { sort = "" } = fields();
    const query = location.hash.slice(1);
    const here = location.pathname.replace(/[^/]*$/, "");
    for (const at of new Set(data.rows.map((row) => row.at ?? ""))) {
      try {
        const key = `editloupe:${here}${at}`;
        if (shown.length === data.rows.length && !sort) sessionStorage.removeItem(key);
        else sessionStorage.setItem(key, JSON.stringify({ slugs: shown.filter((row) => (row.at ?? "") === at).map((row) => row.slug), query: at ? "" : query }));
      } catch { /* no storage, or a list too long for it: samples are stepped through in the run's order */ }
    }
  }

  function restore() {
    const state = new URLSearchParams(location.hash.slice(1));
    for (const element of form.elements) if (element.name) element.value = "";
    for (const [field, text] of state) {
      const element = form.elements[field];
      if (!element) continue;
      // A column is sorted by its head; it is no choice of the list then.
      if (field === "sort") choose(text); else element.value = text;
    }
  }

  // Sets the list to this order, which gets an entry if it is that of a column.
  function choose(sort) {
    const list = form.elements.sort;
    list.querySelector("[data-column]")?.remove();
    if (![...list.options].some((option) => option.value === sort)) {
      const column = columns.find((one) => `label.${one.key}` === sort.replace(/^-/, ""));
      const words = column ? `${column.question.short}, ${column.name}` : sort.replace(/^-/, "");
      const option = make("option", { value: sort, textContent: `${words} ${sort.startsWith("-") ? "↓" : "↑"}` });
      option.dataset.column = "";
      list.append(option);
    }
    list.value = sort;
  }

  // --- the overview ---

  function overview() {
    const strip = document.getElementById("overview");
    const rows = data.overview.filter((one) => one.rows.length);
    const notes = [...new Set([...data.facts.problems, ...data.overview.filter((one) => one.problem).map((one) => `No means: ${one.problem}`)])];
    strip.hidden = !rows.length && !notes.length;
    const spent = [data.facts.seconds ? `${duration(data.facts.seconds)} of verdicts` : "", data.facts.tokens ? `${count(data.facts.tokens)} tokens` : ""];
    const cost = data.of ? 0 : data.rows.reduce((sum, row) => sum + (row.cost ?? 0), 0);
    if (cost) spent.push(`$${cost < 1 ? cost.toPrecision(2) : cost.toFixed(2)}`);
    const words = document.getElementById("spent");
    if (words) words.textContent = spent.filter(Boolean).join(" · ");
    const parts = rows.map((one) => {
      const judge = data.judges[one.judge];
      const box = make("div", { className: "judge-means" });
      if (judge) box.append(make("h3", { textContent: judge.name, title: judge.title }));
      const [whole, ...others] = one.rows;
      for (const [n, cell] of (whole?.cells ?? []).entries()) {
        const by = others.map((other) => `${other.name} ${other.cells[n]?.text ?? "–"}`).join(" · ");
        box.append(mean(cell, one.judge, by));
      }
      return box;
    });
    const problems = notes.map((problem) => make("p", { className: "notice bad", textContent: problem }));
    const cards = make("div", { className: "cards", tabIndex: 0, role: "region", ariaLabel: "Means by judge" }, ...parts);
    strip.replaceChildren(...problems, ...(parts.length ? [cards] : []));
  }

  function mean(cell, judge, by) {
    const waits = data.of !== undefined;
    const interval = cell.low === null ? "" : ` [${cell.low.toFixed(cell.digits)}, ${cell.high.toFixed(cell.digits)}]`;
    const bars = make("div", { className: "bars" });
    if (cell.meter !== null) bars.append(meter(cell));
    const labels = distribution(cell.metric, judge);
    if (labels) bars.append(labels);
    const box = make("div", { className: "mean" }, make("span", { className: "dim", textContent: cell.short }), make("strong", { textContent: cell.text }),
      bars, make("small", { textContent: waits ? "…" : `${count(cell.judged)} of ${count(cell.asked)}` }));
    if (by) box.append(make("p", { className: "dim by-editor", textContent: by, title: by }));
    if (waits) return box;
    box.title = `${cell.short}: mean of all samples ${cell.text}${interval && `, 95 % interval${interval}`}; ${count(cell.judged)} judged of ${count(cell.asked)} asked`;
    return box;
  }

  // A bar of 0 to 100 with the interval as a line with ends.
  function meter(cell) {
    const tone = `tone-${Math.min(3, Math.max(0, Math.round((cell.meter / 100) * 3)))}`;
    const parts = [draw("rect", { class: "ground", width: "100%", height: 8 }), draw("rect", { class: tone, width: `${cell.meter}%`, height: 8 })];
    if (cell.low !== null) {
      const [low, high] = [cell.low, cell.high].map((v) => Math.min(100, Math.max(0, v)));
      parts.push(draw("line", { class: "interval", x1: `${low}%`, x2: `${high}%`, y1: 4, y2: 4 }));
      for (const end of [low, high]) parts.push(draw("line", { class: "interval", x1: `${end}%`, x2: `${end}%`, y1: 0, y2: 8 }));
    }
    return draw("svg", { class: "bar", width: "100%", height: 8, "aria-hidden": "true" }, ...parts);
  }

  // How often each label was given, worst first, then what has none.
  function distribution(metric, judge) {
    const question = data.questions.find((one) => one.id === metric);
    const at = columns.findIndex((column) => column.question === question && (column.judge === judge || column.judge === -1));
    if (!question || !question.labels.length || at < 0) return null;
    if (data.of) return draw("svg", { class: "labels-bar", width: "100%", height: 14 });
    const counts = new Map([...question.labels].reverse().map((label) => [label, 0]));
    let lost = 0;
    for (const row of data.rows) for (const chip of row.cells[at]) if (chip.status !== "ok") lost++; else if (counts.has(chip.name)) counts.set(chip.name, counts.get(chip.name) + 1);
    const parts = [...counts].map(([name, n]) => [name, question.tones[name] ?? "tone-plain", n]);
    if (lost) parts.push(["no answer", "tone-none", lost]);
    const total = parts.reduce((sum, [, , n]) => sum + n, 0);
    if (!total) return null;
    let x = 0;
    const bars = [];
    for (const [name, tone, n] of parts) {
      if (n) bars.push(draw("svg", { x: `${(100 * x) / total}%`, width: `${(100 * n) / total}%`, height: 14, class: tone },
        draw("title", {}, `${name}: ${count(n)} of ${count(total)}`), draw("rect", { width: "100%", height: 14 }),
        ...(n / total > 0.07 * String(n).length ? [draw("text", { x: "50%", y: 11 }, count(n))] : [])));
      x += n;
    }
    const words = parts.filter(([, , n]) => n).map(([name, , n]) => `${name} ${count(n)}`).join(", ");
    return draw("svg", { class: "labels-bar", width: "100%", height: 14, role: "img", "aria-label": words }, ...bars);
  }

  function legend() {
    const metric = data.questions.filter((question) => Object.keys(question.tones).length);
    if (!metric.length) return;
    const lists = metric.map((question) => make("li", {}, make("span", { className: "dim", textContent: question.short }), ...[...question.labels].reverse()
      .filter((label) => question.tones[label]).map((name) => chip({ name, tone: question.tones[name] }))));
    document.getElementById("overview").append(make("ul", { className: "legend" }, ...lists));
  }

  // --- events ---

  function show() {
    tail = ends();
    offer();
    head();
    overview();
    legend();
  }

  // Puts new data in the place of the old.
  function renew(rows, then = render) {
    const top = view.scrollTop;
    take(rows);
    show();
    then();
    view.scrollTop = top;
  }

  const chosen = () => location.hash && !ANCHORS.includes(location.hash);

  // Filters and the order of the address need all rows.
  function start() {
    if (!chosen() && document.body.dataset.first && data.rows.some((row) => row.spread > 0)) history.replaceState(null, "", `#${document.body.dataset.first}`);
    if (chosen()) restore();
    render();
  }

  async function startWithAll() {
    form.inert = true;
    if (chosen()) found.textContent = READING; else render();
    try {
      renew(await (await fetch("rows.json")).json(), start);
      form.inert = false;
    } catch {
      found.textContent = "The server does not answer; load the page again.";
    }
  }

  take(window.editloupeRows);
  form.hidden = view.hidden = false;
  show();
  const began = data.of ? startWithAll() : start();
  performance.mark("editloupe-drawn");
  Promise.resolve(began).then(() => performance.mark("editloupe-whole"));

  form.addEventListener("input", (event) => { if (event.target.name !== "sort") render(); });
  form.elements.sort.addEventListener("change", () => { choose(form.elements.sort.value); render(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { choose(""); render(); }));
  table.addEventListener("click", (event) => {
    const by = event.target.closest("th button")?.value;
    if (!by || data.of) return;
    const now = form.elements.sort.value;
    choose(now === by ? `-${by}` : now === `-${by}` ? "" : by);
    render();
  });
  // As late as it can be: before the page is left, and before a link may open elsewhere.
  addEventListener("pagehide", keep);
  table.addEventListener("click", (event) => { if (event.target.closest("a")) keep(); }, { capture: true });
  let waiting = false;
  const scrolled = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; paint(); });
  };
  view.addEventListener("scroll", scrolled, { passive: true });
  addEventListener("scroll", scrolled, { passive: true });
  addEventListener("resize", () => { frame(); measure(); paint(true); });
  addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "/" && !typing) { event.preventDefault(); form.elements.q.focus(); }
    if (event.key === "Escape" && event.target === form.elements.q) { form.elements.q.value = ""; render(); }
  });
  addEventListener("hashchange", () => { if (!data.of && !ANCHORS.includes(location.hash)) { restore(); render(); } });

  // Statistics are asked for when they are unfolded: they take long in a large run.
  const statistics = document.getElementById("statistics");
  statistics.addEventListener("toggle", async () => {
    const from = statistics.dataset.from;
    if (!from || !statistics.open || statistics.dataset.asked) return;
    statistics.dataset.asked = "yes";
    const wait = make("p", { className: "dim", textContent: "Being computed…" });
    statistics.append(wait);
    try {
      const text = await (await fetch(from)).text();
      wait.replaceWith(document.adoptNode(new DOMParser().parseFromString(text, "text/html").getElementById("content")));
    } catch {
      wait.textContent = "The server does not answer.";
      delete statistics.dataset.asked;
    }
  });

  // A served run that is still written to: ask for what is new, and put the new numbers in place.
  const address = document.body.dataset.live;
  if (!address) return;
  async function ask() {
    let pause = 2000;
    try {
      const began = performance.now();
      const news = await (await fetch(address, { cache: "no-store" })).json();
      document.getElementById("live").hidden = !news.running;
      if (news.version !== data.version && !data.of) {
        const [rows, text] = await Promise.all([
          fetch("rows.json", { cache: "no-store" }).then((answer) => answer.json()),
          fetch("index.html", { cache: "no-store" }).then((answer) => answer.text()),
        ]);
        const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("summary");
        document.getElementById("summary").replaceWith(document.adoptNode(fresh));
        renew(rows);
      }
      // A large run is asked for less often than it could be, so that looking does not slow judging down.
      pause = Math.max(news.running ? 2000 : 10000, 10 * (performance.now() - began));
    } catch {
      pause = 15000; // the server was stopped, or is busy
    }
    setTimeout(ask, pause);
  }
  setTimeout(ask, 2000);
})();
