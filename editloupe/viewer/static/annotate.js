// One rater's questions, one after another: a key gives an answer, which is on the server's disk before the next question
// comes. What could not be saved stays in this browser until it is. Built from the server's JSON; no HTML from text.
"use strict";
(() => {
  document.documentElement.classList.add("js");
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = (selector, within = document) => within.querySelector(selector);
  const byId = (id) => document.getElementById(id);
  const { rater, shelf } = document.body.dataset;
  let token = document.body.dataset.token;

  // An element with text, children and attributes.
  function make(tag, { text = "", attributes = {}, children = [] } = {}) {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== false) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  // Words with the key that does the same.
  const keyed = (text, key) => make("span", { children: [`${text} `, make("kbd", { text: key, attributes: { "aria-hidden": "true" } })] });

  const SHORT = 500; // characters of a question, up to its first heading, that are shown above its answers
  const guide = byId("guide");

  // ---- What is asked

  let queue = []; // {id, sample, name, scope, status}
  let at = -1;
  let question = null; // the one that is shown, with its pictures
  let since = 0; // when it was shown, in ms
  let left = 0; // open questions
  let moving = false; // whether another question is on its way: a key pressed meanwhile was not meant for it
  const fetched = new Map(); // id → question, asked for ahead

  // What a browser throws where nobody answers is in words of its own.
  const reasonOf = (error) => (error instanceof TypeError ? "the server does not answer" : error.message);

  async function get(address) {
    const reply = await fetch(address, { cache: "no-store" });
    if (!reply.ok) throw new Error((await reply.text()).trim());
    return reply.json();
  }

  const withRater = (name, more = "") => `${name}?rater=${encodeURIComponent(rater)}${more}`;

  async function loadQueue() {
    const found = await get(withRater("queue.json"));
    if (found.shelf !== shelf) throw new Error("another run is served at this address now; open this page from its own server");
    queue = found.questions;
    token = found.token;
    count(found.progress);
    if (!busy) finish();
  }

  function count(progress) {
    byId("bar").max = Math.max(1, progress.total);
    byId("bar").value = progress.answered + progress.skipped;
    const skipped = progress.skipped ? `, ${progress.skipped.toLocaleString("en")} skipped` : "";
    byId("count").textContent = `${progress.answered.toLocaleString("en")} of ${progress.total.toLocaleString("en")} answered${skipped}`;
    if (progress.open) byId("finished").hidden = true;
    left = progress.open;
    byId("finished").textContent = progress.total
      ? `All ${progress.total.toLocaleString("en")} questions are done. Keys n and p go through them, and an answer can still be changed.`
      : "There is no question for you here.";
  }

  // Say that all is done, once the page listens to keys again.
  function finish() {
    byId("finished").hidden = left > 0;
  }

  const ask = (id) => fetched.get(id) ?? get(withRater("question.json", `&id=${encodeURIComponent(id)}`));

  // The next open question after a place, else the first open one; -1 if none is open.
  function nextOpen(from) {
    for (let step = 1; step <= queue.length; step++) {
      const place = (from + step) % queue.length;
      if (queue[place].status === "open") return place;
    }
    return -1;
  }

  async function go(place) {
    if (place < 0 || place >= queue.length || moving) return;
    const id = queue[place].id;
    moving = true;
    try {
      const found = await ask(id);
      fetched.delete(id);
      at = place;
      show(found);
    } catch (error) {
      tell(`The question cannot be loaded: ${reasonOf(error)}`, true);
      return;
    } finally {
      moving = false;
    }
    fetchAhead();
  }

  // Ask for what comes next, so that it need not be waited for.
  async function fetchAhead() {
    const ahead = nextOpen(at);
    if (ahead >= 0 && ahead !== at && !fetched.has(queue[ahead].id)) {
      const next = queue[ahead].id;
      fetched.clear();
      try {
        const found = await get(withRater("question.json", `&id=${encodeURIComponent(next)}`));
        fetched.set(next, found);
        for (const view of found.views) if (view.address) new Image().src = view.address;
      } catch { /* it is asked for again when its turn comes */ }
    }
  }

  function show(found) {
    question = found;
    since = performance.now();
    history.replaceState(null, "", `#${found.id}`);
    byId("desk").hidden = false;
    byId("position").textContent = `${(at + 1).toLocaleString("en")} of ${queue.length.toLocaleString("en")}`;
    byId("sample").textContent = found.sample;
    byId("instruction").replaceChildren(...found.instructions.map((text, number) =>
      make("p", { text: found.instructions.length > 1 ? `${number + 1}. ${text}` : text, attributes: { class: `instruction${text.length > 180 ? " long" : ""}`, dir: "auto" } })));
    byId("facts").replaceChildren(...[found.sample, found.edit_type].filter(Boolean).map((text) => make("span", { text, attributes: { class: "fact dim" } })));
    byId("question").textContent = found.scope ? `${found.name}, ${found.scope}` : found.name;
    // A short question stands above its answers; a long one, and rules below a heading, are read once, and then in the way.
    const heading = found.prompt.search(/^#+\s/m), lead = heading < 0 ? found.prompt : found.prompt.slice(0, heading);
    const above = lead.length <= SHORT ? lead : "", folded = written(found.prompt.slice(above.length));
    guide.hidden = !folded.length;
    byId("asked").hidden = !above;
    byId("asked").replaceChildren(...written(above));
    byId("prompt").replaceChildren(...folded);
    byId("note").value = found.given?.note ?? "";
    byId("told").textContent = "";
    byId("told").className = "";
    const within = document.activeElement === document.body || byId("widget").contains(document.activeElement);
    pictures(found);
    votes(found);
    widget(found);
    // What had the focus is gone; a screen reader goes on at the new question.
    if (within) byId("question").focus({ preventScroll: true });
    if (found.given) {
      const words = found.given.status === "skipped" ? `skipped (${found.given.note})` : shortly(found.given.answer);
      tell(`You said: ${words}`);
    }
  }

  const shortly = (answer) => (answer.text.length > 90 ? `${answer.text.slice(0, 89)}…` : answer.text);

  // A prompt's Markdown: headings, lists, bold words. Everything else is text.
  function written(prompt) {
    const found = [];
    let list = null;
    for (const line of prompt.split("\n")) {
      const item = line.match(/^\s*(?:[-*]|\d+[.)])\s+(.*)$/), head = line.match(/^#+\s+(.*)$/);
      if (item) {
        if (!list) found.push((list = make(/^\s*\d/.test(line) ? "ol" : "ul")));
        list.append(make("li", { children: bold(item[1]) }));
        continue;
      }
      list = null;
      if (head) found.push(make("h3", { children: bold(head[1]) }));
      else if (line.trim()) found.push(make("p", { children: bold(line) }));
    }
    return found;
  }

  const bold = (text) => text.split(/\*\*(.+?)\*\*/).map((part, number) => (number % 2 ? make("strong", { text: part }) : part));

  // ---- Pictures

  const compare = byId("compare");
  const look = window.editloupeLook(compare, () => goThere());
  const panes = all(".pane", compare);
  let pairs = [[0, 1]], pair = 0;
  let shown = []; // the views in the panes

  function goThere() {
    if (look.there.back) {
      [look.view, look.there.on, look.there.back] = [look.there.back, "", null];
      return look.place();
    }
    if (!look.home) return;
    const back = look.view;
    look.goHome();
    look.there.back = back;
  }

  function pictures(found) {
    const views = found.views, last = views.length - 1;
    // Three at once; of more, the last one is shown, which is what boxes are drawn on.
    shown = views.length > 3 ? [views[0], views[1], views[last]] : views;
    byId("look").hidden = !views.length && !found.problem;
    compare.hidden = !views.length;
    byId("problem").hidden = !found.problem;
    byId("problem").textContent = found.problem;
    compare.dataset.panes = shown.length;
    panes.forEach((pane, number) => fill(pane, shown[number]));
    const further = views.length > 3 ? views.slice(2) : [];
    byId("further").hidden = !further.length;
    byId("further").replaceChildren(...further.map((view) => {
      const button = make("button", { attributes: { type: "button" }, children: [make("img", { attributes: { src: view.address, alt: "" } }), view.alias] });
      button.addEventListener("click", () => { shown[2] = view; fill(panes[2], view); look.place(); });
      return make("li", { children: [button] });
    }));
    pairs = shown.length > 2 ? [[0, 1], [1, 2], [0, 2]] : [[0, 1]];
    // Two outcomes are compared with each other, not with the picture before.
    const named = found.options.map((option) => shown.findIndex((view) => view.alias === option.name)).filter((place) => place >= 0);
    pair = named.length === 2 ? Math.max(0, pairs.findIndex((two) => named.includes(two[0]) && named.includes(two[1]))) : 0;
    look.home = found.home ?? undefined;
    look.homeName = "the target";
    look.there.back = null;
    one("[data-zoom=there]", compare).hidden = !found.home;
    byId("outline").hidden = !shown.some((view) => view.boxes.length);
    one(".modes", compare).hidden = shown.length < 2;
    laid();
    if (shown.length < 2) look.mode("side");
    look.fit();
  }

  function fill(pane, view) {
    pane.hidden = !view;
    if (!view) return;
    const frame = one(".frame", pane), image = one(".stack > img", frame);
    one(".what", pane).textContent = view.alias;
    one(".size", pane).textContent = `${view.width}×${view.height}`;
    for (const [name, value] of Object.entries({ src: view.address ?? "", width: view.width, height: view.height, alt: `${view.alias} of ${question.sample}` })) image.setAttribute(name, value);
    frame.dataset.width = view.width;
    frame.dataset.height = view.height;
    frame.setAttribute("aria-label", `${view.alias}; arrow keys move, plus and minus zoom`);
    frame.style.setProperty("--ratio", view.width / view.height);
    one(".lay", frame).replaceChildren(drawn(view, view.boxes.map(({ name, box }) => ({ name, box, kind: "target" }))));
  }

  const SVG = "http://www.w3.org/2000/svg";
  // Boxes in px of a view, as an SVG in the image's own pixels.
  function drawn(view, marks, extra = "") {
    const svg = document.createElementNS(SVG, "svg");
    for (const [name, value] of Object.entries({ class: `marks ${extra}`, viewBox: `0 0 ${view.width} ${view.height}`, preserveAspectRatio: "none", "aria-hidden": "true" })) svg.setAttribute(name, value);
    for (const { name, box, kind } of marks) {
      const group = document.createElementNS(SVG, "g");
      group.setAttribute("class", `mark ${kind}`);
      for (const under of [true, false]) {
        const rect = document.createElementNS(SVG, "rect");
        if (under) rect.setAttribute("class", "under");
        for (const [key, value] of Object.entries({ x: box[0], y: box[1], width: box[2] - box[0], height: box[3] - box[1] })) rect.setAttribute(key, value);
        group.append(rect);
      }
      const words = document.createElementNS(SVG, "text");
      words.setAttribute("x", box[0]);
      words.setAttribute("y", box[1]);
      words.textContent = name;
      group.append(words);
      svg.append(group);
    }
    return svg;
  }

  // The pair that swipe, blink and difference compare: the first pane shows one of it, and the other lies over it.
  function laid() {
    const over = one(".over img", compare), [below, above] = pairs[pair].map((place) => shown[place]);
    byId("pair").hidden = pairs.length < 2;
    if (pairs.length > 1) byId("pair").textContent = `${below.alias} | ${above.alias}`;
    if (!above) return;
    for (const [name, value] of Object.entries({ src: above.address ?? "", width: above.width, height: above.height })) over.setAttribute(name, value);
    one(".what", panes[0]).dataset.over = above.alias;
    if (compare.dataset.mode !== "side" || one(".what", panes[0]).textContent !== shown[0].alias) fill(panes[0], compare.dataset.mode === "side" ? shown[0] : below);
    one(".what", panes[0]).dataset.over = above.alias;
  }

  function mode(name) {
    look.mode(name);
    if (shown.length) laid();
    look.place();
  }

  byId("pair").addEventListener("click", () => { pair = (pair + 1) % pairs.length; if (compare.dataset.mode === "side") look.mode("swipe"); mode(compare.dataset.mode); });
  compare.addEventListener("click", (event) => { if (event.target.closest("button[data-mode]")) laid(); });

  // ---- Saving: first into this browser, then to the server, and out of this browser once the server has it on disk.

  let waiting = {}; // id → what is to be sent
  let retry = 0;
  let busy = false;
  const refused = []; // answers that were refused while their question was not shown, in words

  const kept = () => JSON.parse(localStorage.getItem(shelf) ?? "{}");

  // Note in this browser whether an answer waits. Those of another tab stay.
  function keep(id) {
    try {
      const { [id]: _, ...all } = kept();
      if (waiting[id]) all[id] = waiting[id];
      if (Object.keys(all).length) localStorage.setItem(shelf, JSON.stringify(all));
      else localStorage.removeItem(shelf);
      return true;
    } catch { return false; }
  }

  try { waiting = kept(); } catch { /* no storage: what is sent stays on this page */ }

  async function post(address, data, again = true) {
    const reply = await fetch(address, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Editloupe-Token": token },
      body: JSON.stringify({ rater, ...data }),
    });
    if (reply.status === 403 && again) {
      // The server was started anew since this page was made.
      await loadQueue();
      return post(address, data, false);
    }
    return reply;
  }

  // Send what one question waits for. Returns what the server has now; null if it still waits, or was refused.
  async function send(id) {
    let reply, body;
    try {
      reply = await post("answer", waiting[id]);
      body = await reply.text();
    } catch (error) {
      return unsaved(reasonOf(error));
    }
    if (reply.ok || reply.status === 422) {
      const { answer } = waiting[id];
      delete waiting[id];
      keep(id);
      if (reply.ok) return notice(JSON.parse(body));
      refuse(id, answer, JSON.parse(body).error);
      return notice();
    }
    if (reply.status === 409) { meanwhile(id, JSON.parse(body)); return null; }
    return unsaved(body.trim());
  }

  function refuse(id, answer, why) {
    if (id === question?.id) return tell(why, true);
    refused.push(`Not stored: ${placed(id)}${answer === null ? "skipped" : `“${answer.slice(0, 90)}”`}. ${why}.`);
  }

  // Where a question stands, to begin a sentence with.
  function placed(id) {
    const entry = queue.find((asked) => asked.id === id);
    return entry ? `${entry.sample}, ${entry.name}: ` : "";
  }

  let why = ""; // why what waits is not saved

  // Tell what waits and what was refused.
  function notice(saved = null) {
    const ids = Object.keys(waiting), words = [...refused];
    if (ids.length && why) {
      const stays = ids.every(keep) ? "kept in this browser, also if the page is closed" : "kept on this page only: do not close it";
      words.unshift(`Not saved yet: ${ids.length} answer${ids.length === 1 ? "" : "s"}, ${stays}. It is tried again by itself. (${why})`);
    }
    if (!ids.length) why = "";
    byId("unsaved").hidden = !words.length;
    byId("unsaved").replaceChildren(...words.map((text) => make("div", { text })));
    return saved;
  }

  function unsaved(reason) {
    why = reason;
    later();
    return notice();
  }

  function later() {
    clearTimeout(retry);
    retry = setTimeout(flush, 2000);
  }

  // Send again what waits, and go on where that was the question in front of the rater.
  async function flush() {
    if (byId("meanwhile").open) return; // the decision sends the rest
    if (busy) return later();
    busy = true;
    const here = question?.id;
    let moved = false;
    try {
      for (const id of Object.keys(waiting)) {
        const saved = await send(id);
        if (saved) settle(id, saved);
        else if (waiting[id]) break;
        moved = moved || (saved && id === here);
      }
      if (moved) await onward();
    } finally {
      busy = false;
      finish();
    }
  }

  function settle(id, saved) {
    const entry = queue.find((asked) => asked.id === id);
    if (entry) entry.status = saved.given ? saved.given.status : "open";
    fetched.delete(id);
    if (id === question?.id) question.revision = saved.revision;
    count(saved.progress);
    if (saved.given) {
      const words = saved.given.status === "skipped" ? `skipped (${saved.given.note})` : shortly(saved.given.answer);
      last = `Saved: ${entry ? `${entry.sample}, ` : ""}${words}`;
    }
    if (saved.progress.total !== queue.length) stale = true;
  }

  let last = ""; // what was saved last, in words
  let stale = false; // whether there are other questions now

  async function onward() {
    const id = queue[at]?.id;
    if (stale) {
      try {
        await loadQueue();
      } catch (error) {
        return tell(`The next question cannot be loaded: ${reasonOf(error)}. ${last}`, true);
      }
      stale = false;
      at = Math.max(-1, queue.findIndex((asked) => asked.id === id));
      fetched.clear();
    }
    const next = nextOpen(at);
    await go(next >= 0 ? next : Math.max(0, at));
    tell(last);
    finish();
    if (next < 0) byId("finished").scrollIntoView({ block: "nearest" });
  }

  async function answer(text, note = byId("note").value) {
    if (busy || moving || !question) return;
    const id = question.id;
    if (waiting[id] && waiting[id].answer === text && waiting[id].note === note) return flush();
    busy = true;
    waiting[id] = {
      id, task_id: question.task_id, answer: text, note, seen: question.revision,
      seconds: Math.round((performance.now() - since) / 100) / 10,
    };
    keep(id);
    press(text);
    tell("Saving…");
    try {
      const saved = await send(id);
      if (saved) {
        settle(id, saved);
        await onward();
      } else if (byId("told").textContent === "Saving…") tell("");
    } finally {
      busy = false;
    }
  }

  // Answered in another tab, or taken back there, since this page asked: nothing is lost, and the rater decides.
  function meanwhile(id, now) {
    const stored = !now.given ? "it was taken back, and is open" : now.given.status === "skipped" ? `it is stored as skipped (${now.given.note})` : `stored is “${shortly(now.given.answer)}”`;
    const mine = waiting[id].answer === null ? "skipped" : `“${waiting[id].answer.slice(0, 90)}”`;
    byId("meanwhile-words").textContent = `${placed(id)}this question was answered meanwhile, in another tab: ${stored}. You said ${mine}.`;
    const dialog = byId("meanwhile");
    byId("keep-theirs").onclick = async () => {
      delete waiting[id];
      keep(id);
      dialog.close();
      settle(id, now);
      last = now.given ? "Kept what is stored." : "The question is open.";
      notice();
      if (id === question?.id) await onward();
      await flush();
    };
    byId("overwrite").onclick = () => {
      waiting[id].seen = now.revision;
      keep(id);
      dialog.close();
      return flush();
    };
    dialog.oncancel = () => byId("keep-theirs").click();
    if (!dialog.open) dialog.showModal();
  }

  async function undo() {
    if (busy) return;
    busy = true;
    try {
      const reply = await post("undo", {}), body = await reply.text();
      if (!reply.ok) throw new Error(reply.status === 422 ? JSON.parse(body).error : body.trim());
      const found = JSON.parse(body);
      if (!found.id) return tell("There is no answer to take back.");
      await loadQueue();
      fetched.clear();
      await go(queue.findIndex((asked) => asked.id === found.id));
      tell("Taken back. The question is open again.");
    } catch (error) {
      tell(`Nothing was taken back: ${reasonOf(error)}`, true);
    } finally {
      busy = false;
    }
  }

  function tell(words, bad = false) {
    const told = byId("told");
    told.textContent = words;
    told.className = bad ? "bad" : words.startsWith("Saved") ? "good" : "dim";
  }

  // ---- Widgets: one for each kind of answer

  let keysOfAnswer = {}; // key → what it does
  let submit = null; // what Enter saves

  function press(text) {
    for (const button of all(".option")) button.setAttribute("aria-pressed", button.dataset.value === text);
  }

  function widget(found) {
    const spec = found.spec, given = found.given?.status === "answered" ? found.given.answer : null;
    keysOfAnswer = {};
    submit = null;
    byId("draw").hidden = true;
    drawing(false);
    boxes = null;
    const makers = {
      labels: () => menu(found.options, given), one_of: () => menu(found.options, given), scale: () => scale(spec, given),
      free_text: () => words(spec, given), record_of: () => record(spec, given),
      box_list: () => boxList(given, shown.length - 1, null),
      labelled_boxes: () => boxList(given, Math.max(0, shown.findIndex((view) => view.alias === spec.image)), spec),
    };
    byId("widget").replaceChildren(...makers[spec.kind]());
  }

  function choice(value, key, { name = value, about = "", tone = "", pressed = false }) {
    const button = make("button", {
      attributes: { type: "button", class: "option", "data-value": value, "aria-pressed": pressed, title: about || null },
      children: [
        ...(key ? [make("kbd", { text: key })] : []),
        ...(tone ? [make("span", { attributes: { class: `dot ${tone}` } })] : []),
        make("span", { attributes: { class: "words" }, children: [make("strong", { text: name }), ...(about ? [make("span", { text: about, attributes: { class: "about" } })] : [])] }),
      ],
    });
    button.addEventListener("click", () => answer(value));
    if (key) keysOfAnswer[key] = () => answer(value);
    return button;
  }

  function menu(options, given) {
    const buttons = options.map(({ name, about, tone }, number) => choice(name, number < 9 ? `${number + 1}` : "", { about, tone, pressed: given?.name === name }));
    return [make("div", { attributes: { class: `answers${options.some((option) => option.about) ? " told" : ""}` }, children: buttons })];
  }

  function scale(spec, given) {
    const first = Math.ceil(spec.low), most = Math.floor(spec.high);
    if (spec.whole && most - first <= 10) {
      const keyOf = (number) => (number >= 0 && number <= 9 ? `${number}` : number === 10 ? (first > 0 ? "0" : "x") : "");
      const buttons = Array.from({ length: most - first + 1 }, (_, place) => first + place)
        .map((number) => choice(`${number}`, keyOf(number), { pressed: given?.value === number }));
      return [make("div", { attributes: { class: "answers digits" }, children: buttons })];
    }
    const step = spec.whole ? 1 : "any", bounds = { min: spec.low, max: spec.high, step };
    const middle = given?.value ?? "";
    const number = make("input", { attributes: { type: "number", id: "number", ...bounds, value: `${middle}` } });
    const range = make("input", { attributes: { type: "range", ...bounds, step: spec.whole ? 1 : (spec.high - spec.low) / 100, value: `${given?.value ?? (spec.low + spec.high) / 2}`, "aria-label": "The same as a slider" } });
    range.addEventListener("input", () => { number.value = range.value; });
    number.addEventListener("input", () => { if (number.value !== "") range.value = number.value; });
    submit = () => answer(number.value.trim());
    for (const digit of "0123456789") keysOfAnswer[digit] = () => { number.value = digit; range.value = digit; number.focus(); };
    return [
      make("label", { text: `A ${spec.whole ? "whole " : ""}number from ${spec.low} to ${spec.high}`, attributes: { class: "field" }, children: [number] }),
      range, saver(),
    ];
  }

  function saver(text = "Save", key = "Enter") {
    const button = make("button", { attributes: { type: "button", class: "save" }, children: [keyed(text, key)] });
    button.addEventListener("click", () => submit());
    return button;
  }

  function words(spec, given) {
    const field = make("textarea", { attributes: { id: "text", rows: 3 } });
    field.value = given?.text ?? "";
    submit = () => answer(field.value);
    keysOfAnswer.i = () => field.focus();
    const limit = spec.max_words ? `, at most ${spec.max_words} words` : "";
    return [make("label", { attributes: { class: "field" }, children: [keyed(`In words${limit}`, "i"), field] }), saver()];
  }

  // The smallest object of a JSON Schema, to begin with.
  function skeleton(schema, root = schema, depth = 0) {
    if (depth > 6 || !schema) return null;
    if (schema.$ref) return skeleton(schema.$ref.replace(/^#\//, "").split("/").reduce((node, name) => node?.[name], root), root, depth + 1);
    if (schema.enum) return schema.enum[0];
    if (schema.type === "object") return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, inner]) => [name, skeleton(inner, root, depth + 1)]));
    return { array: [], string: "", integer: 0, number: 0, boolean: false }[schema.type] ?? null;
  }

  function record(spec, given) {
    const field = make("textarea", { attributes: { id: "text", class: "json", rows: 7, spellcheck: "false" } });
    const begin = given ? JSON.parse(given.text) : skeleton(spec.schema);
    field.value = JSON.stringify(begin, null, 2);
    submit = () => answer(field.value);
    keysOfAnswer.i = () => field.focus();
    const schema = make("details", { children: [make("summary", { text: "JSON Schema" }), make("pre", { text: JSON.stringify(spec.schema, null, 2), attributes: { tabindex: 0 } })] });
    return [make("label", { attributes: { class: "field" }, children: [keyed("A JSON object", "i"), field] }), schema, saver("Save", "Ctrl+Enter")];
  }

  // ---- Boxes: drawn on a picture, or set by keys. In thousandths of its width and height.

  let boxes = null; // {list: [[x0, y0, x1, y1, label, name]], frame, view, spec, rows}
  let draws = false;

  const numbers = (box) => box.slice(0, 4).map((value) => Math.round(Math.min(1000, Math.max(0, value))));

  function boxList(given, place, spec) {
    const pane = panes[Math.max(0, place)];
    const rows = make("ol", { attributes: { class: "box-rows" } });
    boxes = { list: [], frame: one(".frame", pane), view: shown[Math.max(0, place)], spec, rows };
    if (given?.boxes) boxes.list = given.boxes.map((box) => [...box]);
    if (given?.data && spec) boxes.list = given.data[spec.list_key].map((item) => [...item.box, item[spec.label_key], item[spec.name_key]]);
    const add = make("button", { attributes: { type: "button" }, children: [keyed("Add a box", "x")] });
    add.addEventListener("click", () => addBox());
    keysOfAnswer.x = () => addBox();
    keysOfAnswer.e = () => drawing(!draws);
    byId("draw").hidden = !boxes.view;
    submit = () => answer(said());
    const where = boxes.view ? `Draw on “${boxes.view.alias}”: drag a box. ` : "";
    redraw();
    drawing(Boolean(boxes.view));
    return [make("p", { text: `${where}Numbers are thousandths of width and height.`, attributes: { class: "dim" } }), rows, add, saver("Save boxes", "Ctrl+Enter")];
  }

  // The answer in the words that the question's spec reads.
  function said() {
    const spec = boxes.spec;
    if (!spec) return JSON.stringify(boxes.list.map(numbers));
    if (spec.form === "lines") return boxes.list.map((box) => `${box[4]}: ${box[5]}, [${numbers(box).map((v) => v / 1000).join(", ")}]`).join("\n") || (spec.none ?? "none");
    return JSON.stringify({ [spec.list_key]: boxes.list.map((box) => ({ [spec.label_key]: box[4], [spec.name_key]: box[5], box: numbers(box) })) });
  }

  function addBox(box = null) {
    const view = look.view, half = 0.1 / view.zoom;
    const made = box ?? [view.x - half, view.y - half, view.x + half, view.y + half].map((value) => value * 1000);
    boxes.list.push([...numbers(made), ...(boxes.spec ? [boxes.spec.labels[0], ""] : [])]);
    redraw();
    one(`.box-rows li:last-child ${boxes.spec ? "[data-name]" : ".handle"}`)?.focus({ preventScroll: true });
  }

  function outline() {
    if (!boxes?.view) return;
    const { width, height } = boxes.view, lay = one(".lay", boxes.frame);
    all("svg.own", lay).forEach((old) => old.remove());
    const marks = boxes.list.map((box, number) => ({ name: `${number + 1}`, kind: "found active", box: [box[0] * width, box[1] * height, box[2] * width, box[3] * height].map((v) => v / 1000) }));
    lay.append(drawn(boxes.view, marks, "own"));
    look.place();
  }

  function redraw() {
    outline();
    boxes.rows.replaceChildren(...boxes.list.map((box, number) => row(box, number)));
  }

  function row(box, number) {
    const handle = make("button", { text: `Box ${number + 1}`, attributes: { type: "button", class: "handle", title: "Arrow keys move it, with Shift they resize it, Delete removes it" } });
    const fields = ["x0", "y0", "x1", "y1"].map((name, place) => {
      const field = make("input", { attributes: { type: "number", min: 0, max: 1000, step: 1, value: `${box[place]}`, "aria-label": `Box ${number + 1}, ${name}` } });
      field.addEventListener("input", () => { box[place] = Number(field.value); outline(); });
      return field;
    });
    const named = [];
    if (boxes.spec) {
      const select = make("select", { attributes: { "aria-label": `Box ${number + 1}, kind` }, children: boxes.spec.labels.map((label) => make("option", { text: label, attributes: { value: label } })) });
      select.value = box[4];
      select.addEventListener("change", () => { box[4] = select.value; });
      const name = make("input", { attributes: { type: "text", "data-name": "", placeholder: "what it is", "aria-label": `Box ${number + 1}, name` } });
      name.value = box[5];
      name.addEventListener("input", () => { box[5] = name.value; });
      named.push(select, name);
    }
    const remove = make("button", { text: "×", attributes: { type: "button", title: "Remove it (Delete)", "aria-label": `Remove box ${number + 1}` } });
    const drop = () => {
      boxes.list.splice(number, 1);
      redraw();
      (all(".handle", boxes.rows)[Math.min(number, boxes.list.length - 1)] ?? byId("question")).focus({ preventScroll: true });
    };
    remove.addEventListener("click", drop);
    handle.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }, move = moves[event.key];
      if (event.key === "Delete" || event.key === "Backspace") { event.preventDefault(); drop(); return; }
      if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const step = 4, [x, y] = move.map((way) => way * step);
      if (event.shiftKey) {
        box[2] = Math.min(1000, Math.max(box[0] + 1, box[2] + x));
        box[3] = Math.min(1000, Math.max(box[1] + 1, box[3] + y));
      } else {
        const [dx, dy] = [Math.max(-box[0], Math.min(1000 - box[2], x)), Math.max(-box[1], Math.min(1000 - box[3], y))];
        box[0] += dx; box[2] += dx; box[1] += dy; box[3] += dy;
      }
      fields.forEach((field, place) => { field.value = box[place]; });
      outline();
    });
    return make("li", { children: [handle, ...named, ...fields, remove] });
  }

  function drawing(on) {
    draws = on;
    byId("draw").setAttribute("aria-pressed", on);
    for (const frame of look.frames) frame.classList.toggle("draws", on && frame === boxes?.frame);
  }
  byId("draw").addEventListener("click", () => drawing(!draws));

  let from = null; // where a box begins, in thousandths
  for (const frame of look.frames) {
    const place = (event) => look.shares(frame, event).map((share) => Math.min(1000, Math.max(0, share * 1000)));
    const dragged = (event) => { const to = place(event); return [Math.min(from[0], to[0]), Math.min(from[1], to[1]), Math.max(from[0], to[0]), Math.max(from[1], to[1])]; };
    const drawable = () => draws && boxes?.frame === frame;
    frame.addEventListener("pointerdown", (event) => {
      if (!drawable() || event.button !== 0 || event.target.closest(".grip")) return;
      event.stopPropagation();
      event.preventDefault();
      frame.setPointerCapture(event.pointerId);
      from = place(event);
    }, true);
    frame.addEventListener("pointermove", (event) => {
      if (!from || !drawable()) return;
      event.stopPropagation();
      outline();
      const { width, height } = boxes.view, box = dragged(event);
      one("svg.own", frame).append(...drawn(boxes.view, [{ name: "", kind: "found active", box: box.map((v, n) => (v * (n % 2 ? height : width)) / 1000) }]).childNodes);
    }, true);
    frame.addEventListener("pointerup", (event) => {
      if (!from || !drawable()) return;
      event.stopPropagation();
      const box = dragged(event);
      from = null;
      // A tap is no box.
      if (box[2] - box[0] >= 2 && box[3] - box[1] >= 2) addBox(box); else outline();
    }, true);
    frame.addEventListener("dblclick", (event) => { if (drawable()) event.stopPropagation(); }, true);
  }

  // ---- What others said, for who settles it

  function votes(found) {
    byId("votes").hidden = !found.votes.length;
    byId("votes").replaceChildren(make("h3", { text: "The raters said" }), make("ul", {
      attributes: { class: "votes" },
      children: found.votes.map(({ who, given }) => make("li", { children: [
        make("span", { text: `${who} `, attributes: { class: "dim" } }), make("strong", { text: given.answer.text }),
        ...(given.note ? [make("span", { text: ` ${given.note}`, attributes: { class: "own-note", dir: "auto" } })] : []),
      ] })),
    }));
  }

  // ---- Skipping, keys, the rest

  function skip() {
    const dialog = byId("why");
    byId("reason").value = question?.given?.status === "skipped" ? question.given.note : byId("note").value;
    dialog.showModal();
    one("button", dialog).focus();
  }

  function skipped(reason) {
    if (!reason.trim()) { byId("reason").focus(); return; }
    byId("why").close();
    answer(null, reason.trim());
  }

  for (const button of all("#why [data-reason]")) button.addEventListener("click", () => skipped(button.dataset.reason));
  byId("skip-now").addEventListener("click", () => skipped(byId("reason").value));
  one("#why [data-close]").addEventListener("click", () => byId("why").close());
  byId("why").addEventListener("keydown", (event) => {
    const field = event.target === byId("reason");
    if (event.key === "Enter" && field) { event.preventDefault(); skipped(byId("reason").value); }
    const button = field ? null : all("#why [data-reason]")[Number(event.key) - 1];
    if (button) { event.preventDefault(); button.click(); }
  });

  byId("skip").addEventListener("click", skip);
  byId("undo").addEventListener("click", undo);
  byId("previous").addEventListener("click", () => go(at - 1));
  byId("following").addEventListener("click", () => go(at + 1));
  byId("help").addEventListener("click", () => byId("keys").showModal());
  try {
    guide.open = localStorage.getItem("editloupe:guide") === "open";
    guide.addEventListener("toggle", () => localStorage.setItem("editloupe:guide", guide.open ? "open" : "shut"));
  } catch { /* no storage: it opens shut */ }

  document.addEventListener("keydown", (event) => {
    const target = event.target, writes = target.matches("input:not([type=checkbox], [type=range]), select, textarea");
    if (one("dialog[open]")) return;
    if (event.key === "Enter" && submit && (event.ctrlKey || event.metaKey || target.id === "number" || (target.id === "text" && !target.matches(".json") && !event.shiftKey))) {
      event.preventDefault();
      return submit();
    }
    if (event.key === "Escape" && writes) { target.blur(); return; }
    if (writes || event.ctrlKey || event.metaKey || event.altKey || (event.repeat && !["+", "=", "-"].includes(event.key))) return;
    const keys = {
      n: () => go(at + 1), p: () => go(at - 1), s: skip, u: undo, "?": () => byId("keys").showModal(),
      c: () => byId("note").focus(), g: () => { guide.open = !guide.open; },
      ...(shown.length ? {
        z: goThere, t: () => one("[data-show=target]").click(), r: () => { if (pairs.length > 1) byId("pair").click(); },
        a: () => mode("side"), w: () => mode("swipe"), b: () => mode("blink"), d: () => mode("difference"),
        "+": look.closer, "=": look.closer, "-": look.farther, f: look.fit, o: look.natural,
      } : {}),
      ...(submit && !target.closest("button, a, summary") ? { Enter: () => submit() } : {}),
      ...keysOfAnswer,
    };
    const act = keys[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  addEventListener("beforeunload", (event) => { if (!Object.keys(waiting).every(keep)) event.preventDefault(); });

  (async () => {
    try {
      await loadQueue();
    } catch (error) {
      tell("");
      byId("unsaved").hidden = false;
      byId("unsaved").textContent = `The questions cannot be loaded: ${reasonOf(error)}. Load the page again.`;
      return;
    }
    await flush();
    const named = queue.findIndex((asked) => asked.id === location.hash.slice(1));
    const open = nextOpen(-1);
    await go(named >= 0 ? named : open >= 0 ? open : 0);
  })();
})();
