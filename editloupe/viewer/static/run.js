// The list of samples: a card a sample with its pictures and what was said of it. Filtered, sorted and drawn from data that
// stands in rows.js or compare.js; of a large run first.js has the first rows, to be looked at until all have come. Only the
// cards in view are in the page, so that thousands stay fluent. Text becomes text nodes; there is no innerHTML here.
"use strict";
(() => {
  const form = document.getElementById("filters");
  const list = document.getElementById("cards");
  const found = document.getElementById("found");
  const LINES = 7; // of answers on a card
  const MORE = 2; // lines of cards drawn above and below what is seen
  const ANCHORS = ["#samples", "#main", "#summary"];
  const READING = "Reading all samples…";
  const SVG = "http://www.w3.org/2000/svg";
  let data, columns, shown = [], drawn = new Map(), first = -1, last = -1;

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
  const duration = (seconds) => (seconds < 90 ? `${seconds.toFixed(seconds < 10 ? 1 : 0)} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`);
  const money = (usd) => `$${usd < 1 ? usd.toPrecision(2) : usd.toFixed(2)}`;

  // What the data says: a column for each question and who answered it, and the text that a search looks in.
  function take(text) {
    data = typeof text === "string" ? JSON.parse(text) : text;
    const by = new Map(data.questions.map((question) => [question.id, new Set()]));
    for (const row of data.rows) {
      for (const [id, chips] of Object.entries(row.answers)) for (const chip of chips) by.get(id).add(chip.by ?? -1);
      for (const id of Object.keys(row.people)) by.get(id)?.add("people");
      row.hay = `${row.id} ${row.text} ${row.editor} ${row.type}`.toLowerCase();
    }
    columns = data.questions.flatMap((question) =>
      [...by.get(question.id)].sort((a, b) => (a === "people") - (b === "people") || a - b).map((judge) => {
        const own = data.judges[judge === -1 && data.judges.length === 1 ? 0 : judge];
        const name = judge === "people" ? "people" : own?.name ?? "score";
        return { question, judge, name, key: `${question.id}@${name}` };
      }));
    for (const row of data.rows) {
      row.cells = columns.map(({ question, judge }) =>
        judge === "people" ? row.people[question.id] || [] : (row.answers[question.id] || []).filter((chip) => (chip.by ?? -1) === judge));
    }
    drawn = new Map();
    list.classList.toggle("three", data.rows.some((row) => row.thumbs.length > 2));
  }

  // --- filters ---

  const fields = () => Object.fromEntries([...new FormData(form)].filter(([, value]) => value));

  function offer() {
    for (const question of data.questions) {
      if (!question.labels.length || form.elements[`label.${question.id}`]) continue;
      const select = make("select", { name: `label.${question.id}`, ariaLabel: question.short }, make("option", { value: "", textContent: "any" }));
      document.getElementById("further").append(make("label", {}, make("span", { textContent: question.short, title: question.name }), select));
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
    for (const question of data.questions) if (question.labels.length) fill(`label.${question.id}`, question.labels);
    fill("judge", [...new Set(columns.map((column) => column.name))], 2);
    fill("status", data.statuses.filter((status) => given.has(status)), 2);
    fill("type", unique((row) => row.type));
    fill("editor", unique((row) => row.editor));
    form.elements.area.closest("label").hidden = data.rows.every((row) => row.area === null);
    form.elements.differ.closest("label").hidden = data.rows.every((row) => differ(row) === null);
    const sorts = form.elements.sort;
    for (const old of sorts.querySelectorAll("[data-column]")) old.remove();
    const chosen = sorts.value;
    for (const column of columns) for (const [sign, arrow] of [["", "↓"], ["-", "↑"]]) {
      const option = make("option", { value: `${sign}label.${column.key}`, textContent: `${column.question.short}, ${column.name} ${arrow}` });
      option.dataset.column = "";
      sorts.append(option);
    }
    sorts.value = chosen;
  }

  function test(wanted) {
    const tests = [];
    if (wanted.q) {
      const words = wanted.q.toLowerCase().split(/\s+/).filter(Boolean);
      tests.push((row) => words.every((word) => row.hay.includes(word)));
    }
    // A label or a status is looked for in the answers of the chosen judge, else of everybody but people.
    const own = columns.map((column, at) => [column, at]).filter(([column]) => (wanted.judge ? column.name === wanted.judge : column.judge !== "people"));
    for (const [field, value] of Object.entries(wanted)) {
      if (!field.startsWith("label.")) continue;
      const cells = own.filter(([column]) => column.question.id === field.slice(6)).map(([, at]) => at);
      tests.push((row) => cells.some((at) => row.cells[at].some((chip) => chip.status === "ok" && chip.name === value)));
    }
    if (wanted.status) tests.push((row) => own.some(([, at]) => row.cells[at].some((chip) => chip.status === wanted.status)));
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

  // Disagreement of the kind that is filtered for; equal ones by name, as in `editloupe compare`.
  const key = (row) => (row.editor ? `${row.editor}/${row.id}` : row.id);
  const kind = () => ({ judges: (row) => row.spread, human: (row) => row.human })[form.elements.differ.value] ?? differ;

  function sorted(rows, sort) {
    if (!sort) return rows;
    const [by, sign] = sort.startsWith("-") ? [sort.slice(1), -1] : [sort, 1];
    const gap = kind();
    const keyed = rows.map((row, at) => [by === "differ" ? gap(row) : value(row, by), at, row]);
    const none = (v) => v === null || v === "";
    // What has no value stands last, whichever way the rest is sorted.
    const words = new Intl.Collator(undefined, { numeric: true });
    const tied = (one, other) => (by === "differ" ? (key(one) < key(other) ? -1 : 1) : 0);
    keyed.sort(([a, i, one], [b, j, other]) => none(a) - none(b) || (none(a) ? 0 : sign * (typeof a === "number" ? a - b : words.compare(a, b))) || tied(one, other) || i - j);
    return keyed.map(([, , row]) => row);
  }

  // --- the cards ---

  function chip(label) {
    const words = label.scope ? `${label.scope}: ${label.name}` : label.name;
    const made = make("span", { className: "chip" }, make("span", { className: `dot ${label.tone}` }), make("span", { className: "words", textContent: words }));
    made.title = [label.scope, label.name, label.rater && `by ${label.rater}`].filter(Boolean).join(", ");
    return made;
  }

  // A line for each question and who answered it.
  function answers(row) {
    const lines = columns.flatMap((column, at) => {
      const chips = row.cells[at];
      if (!chips.length) return [];
      const apart = row.apart[column.question.id] > 0 && column.judge !== "people";
      const again = columns[at - 1]?.question === column.question && row.cells[at - 1].length;
      const asked = make("span", { className: "asked", textContent: again ? "" : column.question.short, title: column.question.name });
      const named = data.judges.length > 1 || column.judge === "people" ? [make("span", { className: "by", textContent: column.name, title: column.name })] : [];
      const own = data.judges[column.judge]?.at;
      const given = make(own === undefined || own === row.at ? "span" : "a", { className: "given" }, ...chips.slice(0, 4).map(chip), ...(chips.length > 4 ? [`+${chips.length - 4}`] : []));
      if (given.tagName === "A") given.href = `${own}samples/${row.slug}.html`;
      return [make("li", { className: apart ? "differs" : "" }, asked, ...named, given)];
    });
    // The sample's page has all.
    if (lines.length > LINES) lines.push(make("li", { className: "dim", textContent: `and ${lines.splice(LINES - 1).length} more` }));
    return make("ul", { className: "answers" }, ...lines);
  }

  function card(row) {
    const at = row.at ?? "";
    const to = `${at}samples/${row.slug}.html`;
    const words = ["Source", "Edited", "Other edit"];
    const pictures = words.slice(0, Math.max(2, row.thumbs.length)).map((word, n) => {
      const thumb = row.thumbs[n];
      if (!thumb) return make("span", { className: "none", textContent: thumb === "" ? "not kept" : "none" });
      return make("img", { src: `${at}thumbs/${thumb.slice(0, 2)}/${thumb}`, loading: "lazy", alt: `${word}, ${row.id}`, width: 200, height: 200 });
    });
    const name = make("a", { className: "name", href: to, textContent: row.id, title: row.id });
    const text = make("p", { className: "text", textContent: row.text, title: row.text, dir: "auto" });
    const area = row.area === null ? "" : `target ${row.area < 10 ? row.area.toFixed(2) : row.area.toFixed(0)} %`;
    const facts = [row.type, row.editor, area, row.cost === null ? "" : money(row.cost), row.seconds ? duration(row.seconds) : "", row.turns ? `${row.turns} turns` : ""];
    const line = facts.filter(Boolean).join(" · ");
    const told = make("div", { className: "told" }, name, text, make("p", { className: "facts-line", textContent: line, title: line }), answers(row));
    const made = make("div", { className: "card" }, make("div", { className: "pair" }, ...pictures), told);
    made.setAttribute("role", "listitem");
    return made;
  }

  // Draws the cards in view; the space above and below is as high as the others would be.
  function paint(again = false) {
    const style = getComputedStyle(list), abreast = style.gridTemplateColumns.split(" ").length;
    const height = parseFloat(style.getPropertyValue("--high")) * parseFloat(getComputedStyle(document.documentElement).fontSize) + parseFloat(style.rowGap);
    const all_ = data.of ?? shown.length, lines = Math.ceil(all_ / abreast), top = list.getBoundingClientRect().top;
    const begin = abreast * Math.max(0, Math.min(lines, Math.floor(-top / height) - MORE));
    const end = Math.min(shown.length, abreast * Math.max(0, Math.ceil((innerHeight - top) / height) + MORE));
    if (!again && begin === first && end === last) return;
    [first, last] = [Math.min(begin, shown.length), Math.max(end, Math.min(begin, shown.length))];
    const cards = [];
    for (let n = first; n < last; n++) {
      let made = drawn.get(shown[n]);
      if (!made) drawn.set(shown[n], (made = card(shown[n])));
      made.ariaPosInSet = n + 1;
      made.ariaSetSize = all_;
      cards.push(made);
    }
    const focused = list.contains(document.activeElement) ? document.activeElement : null;
    list.replaceChildren(...cards);
    if (focused?.isConnected) focused.focus({ preventScroll: true });
    list.style.paddingTop = `${(first / abreast) * height}px`;
    list.style.paddingBottom = `${Math.max(0, lines - Math.ceil(last / abreast)) * height}px`;
  }

  function render() {
    const wanted = fields();
    const { sort = "", ...filters } = wanted;
    shown = sorted(data.rows.filter(test(filters)), sort);
    paint(true);
    const many = count(data.rows.length);
    found.textContent = data.of ? READING : shown.length === data.rows.length ? `${many} samples` : `${count(shown.length)} of ${many}`;
    const more = Object.keys(filters).filter((name) => form.elements[name].closest("#further")).length;
    form.querySelector("summary").textContent = more ? `More (${more})` : "More";
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
        const place = `editloupe:${here}${at}`;
        if (shown.length === data.rows.length && !sort) sessionStorage.removeItem(place);
        else sessionStorage.setItem(place, JSON.stringify({ slugs: shown.filter((row) => (row.at ?? "") === at).map((row) => row.slug), query: at ? "" : query }));
      } catch { /* no storage, or a list too long for it: samples are stepped through in the run's order */ }
    }
  }

  function restore() {
    for (const element of form.elements) if (element.name) element.value = "";
    for (const [field, text] of new URLSearchParams(location.hash.slice(1))) if (form.elements[field]) form.elements[field].value = text;
  }

  // --- the overview ---

  function overview() {
    const strip = document.getElementById("overview");
    const rows = data.overview.filter((one) => one.rows.length);
    const notes = [...new Set([...data.problems, ...data.overview.filter((one) => one.problem).map((one) => `No means: ${one.problem}`)])];
    strip.hidden = !rows.length && !notes.length;
    const cost = data.of ? 0 : data.rows.reduce((sum, row) => sum + (row.cost ?? 0), 0);
    const spent = [data.tokens ? `${count(data.tokens)} tokens` : "", cost ? money(cost) : ""];
    const words = document.getElementById("spent");
    if (words) words.textContent = spent.filter(Boolean).join(" · ");
    const parts = rows.map((one) => {
      const judge = data.judges[one.judge];
      const [whole, ...others] = one.rows;
      return make("p", { className: "judge-means" }, make("strong", { textContent: judge?.name ?? "", title: judge?.title ?? "" }), ...(whole?.cells ?? []).map((cell, n) =>
        mean(cell, one.judge, others.map((other) => `${other.name} ${other.cells[n]?.text ?? "–"}`).join(", "))));
    });
    strip.replaceChildren(...notes.map((problem) => make("p", { className: "notice bad", textContent: problem })), ...parts);
  }

  function mean(cell, judge, by) {
    const interval = cell.low === null ? "" : `[${cell.low.toFixed(cell.digits)}, ${cell.high.toFixed(cell.digits)}]`;
    const box = make("span", { className: "mean" }, make("span", { className: "dim", textContent: cell.short }), make("strong", { textContent: cell.text }),
      make("span", { className: "dim", textContent: interval }), distribution(cell.metric, judge) ?? meter(cell), make("small", { textContent: `${count(cell.judged)}/${count(cell.asked)}` }));
    box.title = `${cell.short}: mean of all samples ${cell.text}${interval && `, 95 % interval ${interval}`}; ${count(cell.judged)} judged of ${count(cell.asked)} asked${by && `; ${by}`}`;
    return box;
  }

  // A bar of 0 to 100 with the interval as a line.
  function meter(cell) {
    if (cell.meter === null) return "";
    const tone = `tone-${Math.min(3, Math.max(0, Math.round((cell.meter / 100) * 3)))}`;
    const parts = [draw("rect", { class: "ground", width: "100%", height: 8 }), draw("rect", { class: tone, width: `${cell.meter}%`, height: 8 })];
    if (cell.low !== null) {
      const [low, high] = [cell.low, cell.high].map((v) => Math.min(100, Math.max(0, v)));
      parts.push(draw("line", { class: "interval", x1: `${low}%`, x2: `${high}%`, y1: 4, y2: 4 }));
    }
    return draw("svg", { class: "means-bar", height: 8, "aria-hidden": "true" }, ...parts);
  }

  // How often each label was given, worst first, then what has none.
  function distribution(metric, judge) {
    const question = data.questions.find((one) => one.id === metric);
    const at = columns.findIndex((column) => column.question === question && (column.judge === judge || column.judge === -1));
    if (!question || !question.labels.length || at < 0) return null;
    const counts = new Map([...question.labels].reverse().map((label) => [label, 0]));
    let lost = 0;
    for (const row of data.rows) for (const one of row.cells[at]) if (one.status !== "ok") lost++; else if (counts.has(one.name)) counts.set(one.name, counts.get(one.name) + 1);
    const parts = [...counts].map(([name, n]) => [name, question.tones[name] ?? "tone-plain", n]);
    if (lost) parts.push(["no answer", "tone-none", lost]);
    const total = parts.reduce((sum, [, , n]) => sum + n, 0);
    if (!total) return null;
    let x = 0;
    const bars = [];
    for (const [name, tone, n] of parts) {
      if (n) bars.push(draw("svg", { x: `${(100 * x) / total}%`, width: `${(100 * n) / total}%`, height: 14, class: tone },
        draw("title", {}, `${name}: ${count(n)} of ${count(total)}`), draw("rect", { width: "100%", height: 14 }),
        ...(n / total > 0.09 * String(n).length ? [draw("text", { x: "50%", y: 11 }, count(n))] : [])));
      x += n;
    }
    const words = parts.filter(([, , n]) => n).map(([name, , n]) => `${name} ${count(n)}`).join(", ");
    return draw("svg", { class: "labels-bar", height: 14, role: "img", "aria-label": words }, ...bars);
  }

  // --- events ---

  // Puts new data in the place of the old.
  function renew(rows, then = render) {
    take(rows);
    offer();
    overview();
    then();
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

  form.hidden = false;
  take(window.editloupeRows);
  offer();
  overview();
  const began = data.of ? startWithAll() : start();
  performance.mark("editloupe-drawn");
  Promise.resolve(began).then(() => performance.mark("editloupe-whole"));

  form.addEventListener("input", render);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(render));
  document.addEventListener("click", (event) => { if (!event.target.closest(".further")) form.querySelector(".further").open = false; });
  // As late as it can be: before the page is left, and before a link may open elsewhere.
  addEventListener("pagehide", keep);
  list.addEventListener("click", (event) => { if (event.target.closest("a")) keep(); }, { capture: true });
  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; paint(); });
  }, { passive: true });
  addEventListener("resize", () => paint(true));
  addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "/" && !typing) { event.preventDefault(); form.elements.q.focus(); }
    if (event.key === "Escape" && event.target === form.elements.q) { form.elements.q.value = ""; render(); }
  });
  addEventListener("hashchange", () => { if (!data.of && !ANCHORS.includes(location.hash)) { restore(); render(); } });

  // A served run that is still written to: ask for what is new, and put the new numbers in place.
  const address = document.body.dataset.live;
  if (!address) return;
  async function ask() {
    let pause = 2000;
    try {
      const asked = performance.now();
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
      pause = Math.max(news.running ? 2000 : 10000, 10 * (performance.now() - asked));
    } catch {
      pause = 15000; // the server was stopped, or is busy
    }
    setTimeout(ask, pause);
  }
  setTimeout(ask, 2000);
})();
