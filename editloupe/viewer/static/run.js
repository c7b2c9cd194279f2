// The sample table of a run: filter, sort, page, all from data that stands in rows.js. Text becomes text nodes and
// nothing else; there is no innerHTML here.
"use strict";
(() => {
  const PAGE = 50;
  const form = document.getElementById("filters");
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const found = document.getElementById("found");
  const pager = document.getElementById("pager");
  const name = document.body.dataset.run;
  let data = JSON.parse(window.editloupeRows);
  const MOST = 6; // answers in a cell; the sample's page has all
  let sort = { by: "", down: false };
  let page = 0;
  let shown = [];

  const make = (tag, props = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), props);
    element.append(...children);
    return element;
  };

  const fields = () => Object.fromEntries([...new FormData(form)].filter(([, value]) => value));

  function offer() {
    const unique = (of) => [...new Set(data.rows.map(of).filter(Boolean))].sort((a, b) => a.localeCompare(b));
    const fill = (field, values) => {
      const select = form.elements[field];
      if (!select) return;
      const chosen = select.value;
      select.replaceChildren(select.options[0], ...values.map((value) => make("option", { value, textContent: value })));
      select.value = chosen;
      select.closest("label").hidden = values.length === 0;
    };
    const given = new Set(data.rows.flatMap((row) => Object.values(row.answers).flat().map((label) => label.status)));
    for (const row of data.rows) if (row.running) given.add("running");
    for (const [question, names] of Object.entries(data.answers)) fill(`label.${question}`, names);
    fill("status", [...data.statuses, "running"].filter((status) => given.has(status)));
    fill("type", unique((row) => row.type));
    fill("editor", unique((row) => row.editor));
    form.elements.area.closest("label").hidden = data.rows.every((row) => row.area === null);
    form.elements.differ.closest("label").hidden = data.rows.every((row) => row.human === null && row.spread === null);
    // A column that says nothing of any sample is left out.
    const empty = { type: (row) => !row.type, editor: (row) => !row.editor, area: (row) => row.area === null, differ: (row) => differ(row) === null, turns: (row) => !row.turns };
    for (const head of table.querySelectorAll("th[data-column]")) {
      const column = head.dataset.column;
      head.hidden = data.rows.every(empty[column] ?? ((row) => !row.running && !(row.answers[column.slice(6)] || []).length));
    }
  }

  function test(wanted) {
    const tests = [];
    if (wanted.q) {
      const words = wanted.q.toLowerCase().split(/\s+/).filter(Boolean);
      tests.push((row) => {
        const text = `${row.id} ${row.text} ${row.editor} ${row.type}`.toLowerCase();
        return words.every((word) => text.includes(word));
      });
    }
    for (const [field, value] of Object.entries(wanted)) {
      if (field.startsWith("label.")) {
        const question = field.slice(6);
        tests.push((row) => (row.answers[question] || []).some((label) => label.status === "ok" && label.name === value));
      }
    }
    if (wanted.status === "running") tests.push((row) => row.running > 0);
    else if (wanted.status) tests.push((row) => Object.values(row.answers).flat().some((label) => label.status === wanted.status));
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

  const differ = (row) => (row.human === null && row.spread === null ? null : Math.max(row.human ?? 0, row.spread ?? 0));

  function value(row, by) {
    if (by.startsWith("label.")) {
      const values = (row.answers[by.slice(6)] || []).map((label) => label.value).filter((v) => v !== null);
      return values.length ? Math.min(...values) : null;
    }
    return by === "differ" ? differ(row) : row[by];
  }

  function sorted(rows) {
    if (!sort.by) return rows;
    const sign = sort.down ? -1 : 1;
    const keyed = rows.map((row, at) => [value(row, sort.by), at, row]);
    // What has no value stands last, whichever way the rest is sorted.
    keyed.sort(([a, i], [b, j]) => {
      if (a === null || a === "" || b === null || b === "") return (a === null || a === "") - (b === null || b === "") || i - j;
      return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true })) || i - j;
    });
    return keyed.map(([, , row]) => row);
  }

  function chip(label) {
    const dot = make("span", { className: `dot ${label.tone}` });
    const chipped = make("span", { className: "chip" }, dot, label.scope ? `${label.scope}: ${label.name}` : label.name);
    if (label.by) chipped.title = label.by;
    return chipped;
  }

  function cell(column, className, ...children) {
    const made = make("td", { className }, ...children);
    const head = table.querySelector(`th[data-column="${CSS.escape(column)}"]`);
    made.dataset.name = head.textContent.trim();
    made.hidden = head.hidden;
    if (!children.length || (children.length === 1 && children[0] === "")) made.classList.add("empty");
    return made;
  }

  function draw(row) {
    const pair = make("span");
    for (const [at, thumb] of [row.thumbs[0], row.thumbs[1]].entries()) {
      if (thumb) pair.append(make("img", { src: `thumbs/${thumb.slice(0, 2)}/${thumb}`, loading: "lazy", alt: `${at ? "Edited" : "Source"}, ${row.id}`, width: 72, height: 72 }));
      else pair.append(make("span", { className: "none", textContent: thumb === "" ? "not kept" : "none" }));
    }
    const link = make("a", { href: `samples/${row.slug}.html`, textContent: row.id, title: row.id });
    const text = make("p", { textContent: row.text, title: row.text });
    text.dir = "auto";
    const line = make("tr", {}, make("td", { className: "pair" }, pair), make("td", { className: "name" }, link, text), cell("type", "", row.type));
    const editor = cell("editor", "if-editors", row.editor);
    editor.title = row.editor;
    line.append(editor);
    for (const question of Object.keys(data.answers)) {
      // A question that was first asked after this page was made has no column yet.
      if (!form.elements[`label.${question}`]) continue;
      const answers = row.answers[question] || [];
      const labels = answers.slice(0, MOST).map(chip);
      if (answers.length > MOST) labels.push(make("span", { className: "chip dim", textContent: `and ${answers.length - MOST} more` }));
      if (!labels.length && row.running) labels.push(make("span", { className: "chip dim", textContent: "running…" }));
      line.append(cell(`label.${question}`, "", ...(labels.length ? [make("span", { className: "labels" }, ...labels)] : [])));
    }
    line.append(cell("area", "number", row.area === null ? "" : `${row.area < 10 ? row.area.toFixed(2) : row.area.toFixed(1)} %`));
    const apart = differ(row);
    line.append(cell("differ", "number", apart === null ? "" : apart.toFixed(0)));
    line.append(cell("turns", "number", String(row.turns)));
    return line;
  }

  function render() {
    const wanted = fields();
    shown = sorted(data.rows.filter(test(wanted)));
    const pages = Math.max(1, Math.ceil(shown.length / PAGE));
    page = Math.min(page, pages - 1);
    body.replaceChildren(...shown.slice(page * PAGE, (page + 1) * PAGE).map(draw));
    const many = data.rows.length.toLocaleString("en");
    found.textContent = shown.length === data.rows.length ? `${many} samples` : `${shown.length.toLocaleString("en")} of ${many} samples`;
    pager.hidden = pages < 2;
    pager.querySelector("span").textContent = `Page ${page + 1} of ${pages.toLocaleString("en")}`;
    pager.querySelector("[data-page='-1']").disabled = page === 0;
    pager.querySelector("[data-page='1']").disabled = page + 1 >= pages;
    for (const button of table.querySelectorAll("[data-sort]")) {
      const on = button.dataset.sort === sort.by;
      button.closest("th").ariaSort = on ? (sort.down ? "descending" : "ascending") : "none";
    }
    const state = new URLSearchParams({ ...wanted, ...(sort.by ? { sort: (sort.down ? "-" : "") + sort.by } : {}), ...(page ? { page: page + 1 } : {}) });
    const query = state.toString();
    if (query !== location.hash.slice(1)) history.replaceState(null, "", query ? `#${query}` : location.pathname + location.search);
    // The sample pages step through what is listed here, in this order.
    try {
      const key = `editloupe:${location.pathname.replace(/[^/]*$/, "")}`;
      if (shown.length === data.rows.length && !sort.by) sessionStorage.removeItem(key);
      else sessionStorage.setItem(key, JSON.stringify({ slugs: shown.map((row) => row.slug), query }));
    } catch { /* no storage, or a list too long for it: samples are stepped through in the run's order */ }
  }

  function restore() {
    const state = new URLSearchParams(location.hash.slice(1));
    for (const [field, text] of state) if (form.elements[field]) form.elements[field].value = text;
    const by = state.get("sort") || "";
    sort = { by: by.replace(/^-/, ""), down: by.startsWith("-") };
    page = Math.max(0, (Number(state.get("page")) || 1) - 1);
  }

  let waiting = 0;
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { page = 0; render(); }, 80);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { page = 0; sort = { by: "", down: false }; render(); }));
  table.tHead.addEventListener("click", (event) => {
    const by = event.target.closest("[data-sort]")?.dataset.sort;
    if (!by) return;
    sort = sort.by !== by ? { by, down: false } : sort.down ? { by: "", down: false } : { by, down: true };
    page = 0;
    render();
  });
  pager.addEventListener("click", (event) => {
    const step = event.target.closest("[data-page]")?.dataset.page;
    if (!step) return;
    page += Number(step);
    render();
    document.getElementById("samples").scrollIntoView();
  });
  addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "/" && !typing) { event.preventDefault(); form.elements.q.focus(); }
    if (event.key === "Escape" && event.target === form.elements.q) { form.elements.q.value = ""; page = 0; render(); }
  });
  addEventListener("hashchange", () => { if (!["#samples", "#main", "#summary"].includes(location.hash)) { restore(); render(); } });

  form.hidden = table.hidden = false;
  offer();
  if (location.hash && !["#samples", "#main", "#summary"].includes(location.hash)) restore();
  render();

  // A served run that is still written to: ask for what is new, and put the new numbers in place.
  const address = document.body.dataset.live;
  if (!address) return;
  let version = data.version;
  async function ask() {
    let pause = 2000;
    try {
      const began = performance.now();
      const news = await (await fetch(address, { cache: "no-store" })).json();
      document.getElementById("live").hidden = !news.running;
      if (news.version !== version) {
        const [rows, text] = await Promise.all([
          fetch("rows.json", { cache: "no-store" }).then((answer) => answer.json()),
          fetch("index.html", { cache: "no-store" }).then((answer) => answer.text()),
        ]);
        version = news.version;
        data = rows;
        offer();
        render();
        const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("summary");
        document.getElementById("summary").replaceWith(fresh);
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
