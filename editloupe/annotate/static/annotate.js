// One rater's questions, one after another: a key gives an answer, which is on the server's disk before the next question
// comes. Built from the server's JSON; no HTML is made from text.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const { rater } = document.body.dataset;
  const LEAD = 500; // characters of a question, up to its first heading, that stand with the instruction
  const STEPS = 11; // buttons of a scale at most; a longer one is a field

  // An element with text, attributes, children and what a click does.
  function make(tag, { text = "", attributes = {}, children = [], click = null } = {}) {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== false) made.setAttribute(name, value);
    made.append(...children);
    if (click) made.addEventListener("click", click);
    return made;
  }

  const key = (letter) => make("kbd", { text: letter, attributes: { "aria-hidden": "true" } });

  // ---- What is asked

  let queue = []; // {id, sample, name, scope, state}
  let at = -1;
  let question = null; // the one that is shown
  let since = 0; // when it was shown, in ms
  let busy = false; // while something is sent or fetched: a key pressed meanwhile was not meant for what comes
  const trail = []; // ids of what was answered on this page, the latest last

  async function ask(address, data = null) {
    const sent = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ rater, ...data }) };
    let reply;
    try {
      reply = await fetch(address, data ? sent : { cache: "no-store" });
    } catch {
      throw new Error("the server does not answer");
    }
    const found = await reply.json().catch(() => ({ error: `the server answers ${reply.status}` }));
    if (!reply.ok) throw new Error(found.error);
    return found;
  }

  const own = `rater=${encodeURIComponent(rater)}`;

  async function load() {
    const found = await ask(`/queue?${own}`);
    queue = found.questions;
    if (!trail.length && found.latest) trail.push(found.latest);
    count();
  }

  function count() {
    const of = (state) => queue.filter((asked) => asked.state === state).length;
    const skipped = of("skipped"), answered = of("answered");
    byId("bar").max = Math.max(1, queue.length);
    byId("bar").value = answered + skipped;
    byId("count").textContent = `${answered} of ${queue.length} answered${skipped ? `, ${skipped} skipped` : ""}`;
    byId("finished").hidden = of("open") > 0;
  }

  // The place of the next open question after a place, else of the first open one; -1 if none is open.
  function nextOpen(from) {
    const order = queue.map((_, step) => (from + 1 + step) % queue.length);
    return order.find((place) => queue[place].state === "open") ?? -1;
  }

  async function go(place) {
    if (busy || place < 0 || place >= queue.length) return;
    busy = true;
    try {
      show(await ask(`/question?${own}&id=${queue[place].id}`));
      at = place;
      byId("position").textContent = `${at + 1} of ${queue.length}`;
    } catch (error) {
      tell(`The question cannot be loaded: ${error.message}`, true);
    } finally {
      busy = false;
    }
  }

  function show(found) {
    question = found;
    since = performance.now();
    history.replaceState(null, "", `#${found.id}`);
    byId("desk").hidden = false;
    byId("sample").textContent = found.sample;
    byId("name").textContent = found.scope ? `${found.name}, ${found.scope}` : found.name;
    byId("instructions").replaceChildren(...found.instructions.map((text, number) =>
      make("p", { text: found.instructions.length > 1 ? `${number + 1}. ${text}` : text, attributes: { class: "instruction", dir: "auto" } })));
    // A short question stands above the pictures; a long one, and rules below a heading, are read once, and then in the way.
    const heading = found.prompt.search(/^#+\s/m), lead = heading < 0 ? found.prompt : found.prompt.slice(0, heading);
    const above = lead.length <= LEAD ? lead : "";
    byId("lead").replaceChildren(...written(above));
    byId("prompt").replaceChildren(...written(found.prompt.slice(above.length)));
    byId("guide").hidden = !byId("prompt").childElementCount;
    byId("note").value = found.given?.note ?? "";
    byId("note").hidden = !byId("note").value;
    pictures(found);
    widget(found);
    tell(found.given ? `You said: ${words(found.given)}. A new answer takes its place.` : "");
    byId("name").focus({ preventScroll: true });
    scrollTo(0, 0);
  }

  const words = (given) => (given.answer === null ? `skipped (${given.note})` : given.answer.length > 90 ? `${given.answer.slice(0, 89)}…` : given.answer);

  function tell(text, bad = false) {
    byId("told").textContent = text;
    byId("told").classList.toggle("bad", bad);
  }

  // A prompt's Markdown: headings, lists, bold words. Everything else is text.
  function written(prompt) {
    const bold = (text) => text.split(/\*\*(.+?)\*\*/).map((part, number) => (number % 2 ? make("strong", { text: part }) : part));
    const found = [];
    let list = null;
    for (const line of prompt.split("\n")) {
      const item = line.match(/^\s*(?:[-*]|\d+[.)])\s+(.*)$/), head = line.match(/^#+\s+(.*)$/);
      if (item && !list) found.push((list = make(/^\s*\d/.test(line) ? "ol" : "ul")));
      if (item) list.append(make("li", { children: bold(item[1]) }));
      else list = null;
      if (head) found.push(make("h3", { children: bold(head[1]) }));
      else if (!item && line.trim()) found.push(make("p", { children: bold(line) }));
    }
    return found;
  }

  // ---- Pictures: one view (zoom, and the place in the middle as shares) for all of them

  let view = { zoom: 1, x: 0.5, y: 0.5 };

  function place() {
    const half = 0.5 / view.zoom;
    view.x = Math.min(1 - half, Math.max(half, view.x));
    view.y = Math.min(1 - half, Math.max(half, view.y));
    const move = `translate(${(0.5 - view.x * view.zoom) * 100}%, ${(0.5 - view.y * view.zoom) * 100}%) scale(${view.zoom})`;
    for (const layer of document.querySelectorAll(".layer")) layer.style.transform = move;
  }

  function pictures(found) {
    view = { zoom: 1, x: 0.5, y: 0.5 };
    byId("problem").textContent = found.problem;
    byId("problem").hidden = !found.problem;
    byId("views").replaceChildren(...found.views.map(pane));
    byId("views").dataset.count = Math.min(3, found.views.length);
    blink(false);
  }

  function pane({ alias, sha256, width, height, boxes }) {
    const percent = (value, whole) => `${(100 * value) / whole}%`;
    const marks = boxes.map(([x0, y0, x1, y1]) => {
      const mark = make("div", { attributes: { class: "mark" } });
      Object.assign(mark.style, { left: percent(x0, width), top: percent(y0, height), width: percent(x1 - x0, width), height: percent(y1 - y0, height) });
      return mark;
    });
    const image = make("img", { attributes: { src: `/picture/${sha256}`, alt: `${alias} of ${question.sample}`, width, height, draggable: "false" } });
    const frame = make("div", { attributes: { class: "frame" }, children: [make("div", { attributes: { class: "layer" }, children: [image, ...marks] })] });
    frame.style.aspectRatio = `${width} / ${height}`;
    moves(frame);
    return make("figure", { children: [make("figcaption", { children: [alias, make("span", { text: ` ${width}×${height}`, attributes: { class: "dim" } })] }), frame] });
  }

  // Dragging moves, a double click zooms in there and out again, Ctrl and the wheel zoom.
  function moves(frame) {
    const shares = (event) => {
      const box = frame.getBoundingClientRect();
      return [view.x + ((event.clientX - box.left) / box.width - 0.5) / view.zoom, view.y + ((event.clientY - box.top) / box.height - 0.5) / view.zoom];
    };
    frame.addEventListener("pointermove", (event) => {
      if (view.zoom === 1 || !event.buttons) return;
      frame.setPointerCapture(event.pointerId);
      view.x -= event.movementX / frame.clientWidth / view.zoom;
      view.y -= event.movementY / frame.clientHeight / view.zoom;
      place();
    });
    frame.addEventListener("dblclick", (event) => {
      const [x, y] = shares(event);
      view = view.zoom > 1 ? { zoom: 1, x: 0.5, y: 0.5 } : { zoom: 4, x, y };
      place();
    });
    frame.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const [x, y] = shares(event), zoom = Math.min(32, Math.max(1, view.zoom * Math.exp(-event.deltaY * 0.005)));
      view = { zoom, x: x + ((view.x - x) * view.zoom) / zoom, y: y + ((view.y - y) * view.zoom) / zoom };
      place();
    }, { passive: false });
  }

  function zoomToTarget() {
    const home = question?.views.find((one) => one.boxes.length);
    const [x0, y0, x1, y1] = home?.boxes[0] ?? [0.25, 0.25, 0.75, 0.75], { width, height } = home ?? { width: 1, height: 1 };
    const share = Math.max((x1 - x0) / width, (y1 - y0) / height);
    view = view.zoom > 1 ? { zoom: 1, x: 0.5, y: 0.5 } : { zoom: Math.min(16, Math.max(1.5, 0.4 / share)), x: (x0 + x1) / 2 / width, y: (y0 + y1) / 2 / height };
    place();
  }

  let blinking = 0;

  // The second picture takes the place of the first one and back, where the eye sees what changed.
  function blink(on) {
    clearInterval(blinking);
    const [first, second] = document.querySelectorAll(".frame img"), other = question?.views[1], before = question?.views[0];
    if (first) first.src = `/picture/${before.sha256}`;
    blinking = 0;
    if (!on || !second) return;
    let shown = false;
    blinking = setInterval(() => { shown = !shown; first.src = `/picture/${(shown ? other : before).sha256}`; }, 650);
  }

  // ---- Answers

  let submit = null; // what Enter does, where an answer is written
  let keys = {}; // of this question's answers: key → what it does

  function widget(found) {
    [submit, keys] = [null, {}];
    const { spec, options, given } = found, low = Math.ceil(spec.low), high = Math.floor(spec.high);
    const isShort = spec.whole && high - low < STEPS;
    const listed = options.length ? options : isShort ? Array.from({ length: high - low + 1 }, (_, n) => ({ name: `${low + n}`, about: "" })) : [];
    const buttons = listed.map((option, number) => choice(option, !options.length ? option.name.slice(-1) : number < 9 ? `${number + 1}` : "", given));
    const answers = byId("answers");
    answers.className = `answers${listed.some((option) => option.about) ? " told" : ""}${options.length || !isShort ? "" : " digits"}`;
    answers.replaceChildren(...(listed.length ? buttons : field(spec, given)));
  }

  function choice({ name, about }, letter, given) {
    const act = () => answer(name), isFree = letter && !keys[letter], pressed = given?.answer === name;
    if (isFree) keys[letter] = act;
    const children = [make("span", { children: [...(isFree ? [key(letter), " "] : []), name], attributes: { class: "label" } })];
    if (about) children.push(make("span", { text: about, attributes: { class: "about dim" } }));
    return make("button", { attributes: { type: "button", class: "option", "aria-pressed": pressed, title: about || null }, children, click: act });
  }

  // A number, a text, or what a judge would write: JSON, boxes in thousandths.
  function field(spec, given) {
    const isNumber = spec.low !== undefined;
    const box = isNumber
      ? make("input", { attributes: { type: "number", id: "field", min: spec.low, max: spec.high, step: spec.whole ? 1 : "any" } })
      : make("textarea", { attributes: { id: "field", rows: 4, dir: "auto" } });
    box.value = given?.answer ?? "";
    submit = () => answer(box.value.trim());
    keys.i = () => box.focus();
    const what = isNumber ? `A number from ${spec.low} to ${spec.high}` : "In the form that is asked for";
    return [make("label", { children: [what, " ", key("i"), box] }), make("button", { attributes: { type: "button", class: "save" }, children: ["Save ", key("Enter")], click: () => submit() })];
  }

  // Send an answer, and go on once the server has it on disk. What could not be saved stays on the page.
  async function answer(text, note = byId("note").value) {
    if (busy || !question) return;
    busy = true;
    const { id, task_id } = question, seconds = Math.round((performance.now() - since) / 100) / 10;
    tell("Saving…");
    let stored;
    try {
      ({ stored } = await ask("/answer", { id, task_id, answer: text, note, seconds }));
      await load();
    } catch (error) {
      return tell(stored ? `Saved. The next question cannot be loaded: ${error.message}` : `Not saved: ${error.message}. Answer again.`, true);
    } finally {
      busy = false;
    }
    if (trail.at(-1) !== id) trail.push(id);
    at = queue.findIndex((asked) => asked.id === id);
    const next = nextOpen(at);
    await go(next >= 0 ? next : at);
    if (next >= 0 && !question.given) tell(`Saved: ${words(stored)}`);
  }

  // Back to what was answered last, so that another answer takes its place.
  function undo() {
    const id = trail.pop(), found = queue.findIndex((asked) => asked.id === id);
    if (found >= 0) return go(found);
    tell("There is no answer to go back to.");
  }

  function skip() {
    byId("reason").value = byId("note").value;
    byId("why").showModal();
  }

  function skipped(reason) {
    if (!reason.trim()) return byId("reason").focus();
    byId("why").close();
    answer(null, reason.trim());
  }

  function write() {
    byId("note").hidden = false;
    byId("note").focus();
  }

  // ---- Keys and buttons

  for (const button of document.querySelectorAll("[data-reason]")) button.addEventListener("click", () => skipped(button.dataset.reason));
  byId("why").addEventListener("keydown", (event) => {
    const isField = event.target === byId("reason"), button = document.querySelectorAll("[data-reason]")[Number(event.key) - 1];
    if (event.key === "Enter" && isField) { event.preventDefault(); skipped(byId("reason").value); }
    if (button && !isField) { event.preventDefault(); button.click(); }
  });
  byId("skip-now").addEventListener("click", () => skipped(byId("reason").value));
  const guide = byId("guide"), help = () => byId("keys").showModal();
  const acts = { undo, skip, write, help, previous: () => go(at - 1), following: () => go(at + 1) };
  for (const [id, act] of Object.entries(acts)) byId(id).addEventListener("click", act);

  document.addEventListener("keydown", (event) => {
    const target = event.target, writes = target.matches("input, textarea");
    if (document.querySelector("dialog[open]")) return;
    const saves = event.ctrlKey || event.metaKey || (target.id === "field" && target.matches("input")) || (target.id === "field" && !event.shiftKey);
    if (event.key === "Enter" && submit && saves) { event.preventDefault(); submit(); return; }
    if (event.key === "Escape" && writes) { target.blur(); return; }
    if (writes || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    const act = {
      n: acts.following, p: acts.previous, s: skip, u: undo, c: write, "?": help, g: () => { guide.open = !guide.open; },
      z: zoomToTarget, t: () => byId("views").classList.toggle("outlined"), b: () => blink(!blinking),
      ...keys,
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  (async () => {
    try {
      await load();
    } catch (error) {
      byId("finished").hidden = false;
      byId("finished").textContent = `The questions cannot be loaded: ${error.message}. Load the page again.`;
      return;
    }
    const named = queue.findIndex((asked) => asked.id === location.hash.slice(1));
    await go(named >= 0 ? named : Math.max(0, nextOpen(-1)));
  })();
})();
