// One sample's page: images in step with each other, verdicts chosen in the grid of labels, keys. The page reads well without this script; it builds no HTML from text.
"use strict";
(() => {
  document.documentElement.classList.add("js");
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = (selector, within = document) => within.querySelector(selector);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;

  // ---- Images: `look.js` keeps them in step.

  const compare = document.getElementById("compare");
  const CROWD = 40; // boxes on the images; of more, only the one that is pointed at shows its name
  const look = window.editloupeLook(compare, () => goThere());
  const { frames, there } = look, source = frames[0];

  // To the crop of the step in focus, or to the target; and back.
  function goThere() {
    if (there.back) {
      [look.view, there.on] = [there.back.view, ""];
      const from = there.back.from;
      there.back = null;
      look.place();
      if (from) from.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
      return;
    }
    const crop = step && one(`.lay > svg.marks:not(.overlaid) .mark.crop[data-step="${CSS.escape(step.id)}"]`);
    if (!crop && !look.home) return;
    const back = { view: look.view, from: crop ? step : null };
    if (crop) {
      const rect = one("rect", crop), box = crop.ownerSVGElement.viewBox.baseVal, get = (name) => Number(rect.getAttribute(name));
      there.on = one("title", crop).textContent;
      draw(crop.dataset.mark);
      look.focusOn(get("x"), get("y"), get("x") + get("width"), get("y") + get("height"), box.width, box.height);
    } else look.goHome();
    there.back = back;
    if (compare.getBoundingClientRect().top < 0 || compare.getBoundingClientRect().top > innerHeight / 2) compare.scrollIntoView({ block: "start" });
  }

  // A chain: the panes show one of its turns beside the image before it.
  let after = null; // its heading

  function pair(figure) {
    const item = figure.closest("li"), before = one("figure", item.previousElementSibling);
    after = figure.dataset.heading;
    const marks = [before, figure].map((one_) => one("svg.marks", one_).cloneNode(true));
    [before, figure].forEach((from, at) => {
      const frame = frames[at], image = one("img", from), link = one("figcaption a", frame.parentElement);
      for (const name of ["src", "width", "height", "alt"]) one(".stack > img.layer", frame).setAttribute(name, image.getAttribute(name));
      for (const name of ["width", "height"]) frame.dataset[name] = image.getAttribute(name);
      frame.style.setProperty("--ratio", frame.dataset.width / frame.dataset.height);
      one(".what", frame.parentElement).textContent = from.dataset.heading;
      link.href = image.src;
      link.textContent = `${frame.dataset.width}×${frame.dataset.height}`;
      all("svg.marks", one(".lay", frame)).forEach((old) => old.remove());
      one(".lay", frame).append(marks[at]);
    });
    const over = one(".over img");
    for (const name of ["src", "width", "height"]) over.setAttribute(name, one("img", figure).getAttribute(name));
    const second = marks[1].cloneNode(true);
    second.classList.add("overlaid");
    one(".lay", source).append(second);
    for (const button of all(".turn-pair")) button.setAttribute("aria-pressed", button.closest("figure") === figure);
    draw();
    look.fit();
  }

  if (source) {
    for (const box of all("[data-show]", compare)) {
      if (!one(`.lay .mark.${box.dataset.show}`)) box.closest("label").hidden = true;
      compare.classList.toggle(`show-${box.dataset.show}`, box.checked);
    }
    for (const button of all(".turn-pair")) {
      button.hidden = frames.length < 2;
      button.addEventListener("click", () => pair(button.closest("figure")));
    }
    if (!one(".over")) one(".group", compare).hidden = true;
    if (!look.home && !one(".lay .mark.crop")) one("[data-zoom=there]", compare).hidden = true;
    if ("homeOpens" in compare.dataset) look.goHome();
    look.place();
  }

  // ---- Verdicts and steps: the address says which one is open.

  let verdicts = all(".verdict");
  let open = null;
  let step = null; // the chosen one
  let seen = null; // else the one in view
  let beside = true; // the answers to one question beside each other

  function show(verdict) {
    if (!verdict) return;
    open = verdict;
    const peers = beside && verdict.dataset.beside ? verdicts.filter((other) => other.dataset.beside === verdict.dataset.beside) : [verdict];
    for (const other of verdicts) other.classList.toggle("open", peers.includes(other));
    for (const other of verdicts) other.classList.toggle("main", other === verdict);
    const read = document.getElementById("verdicts");
    read.classList.toggle("several", peers.length > 1);
    for (const button of all("button.beside")) {
      button.hidden = false;
      button.setAttribute("aria-pressed", peers.length > 1);
    }
    for (const cell of all("a.cell")) {
      if (cell.hash === `#${verdict.id}`) {
        cell.setAttribute("aria-current", "true");
        if (cell.closest("details")) cell.closest("details").open = true;
      } else cell.removeAttribute("aria-current");
    }
    for (const shown of peers) unfold(shown);
    draw();
  }

  // Long texts are cut after some lines, and a button shows all of them.
  function unfold(within) {
    for (const text of all(".fold", within)) {
      if (text.nextElementSibling?.matches(".unfold")) continue;
      if (text.scrollHeight <= text.clientHeight + 4) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "unfold";
      button.textContent = "Show all";
      button.setAttribute("aria-expanded", "false");
      button.addEventListener("click", () => {
        const whole = text.classList.toggle("whole");
        button.textContent = whole ? "Show less" : "Show all";
        button.setAttribute("aria-expanded", whole);
      });
      text.after(button);
    }
  }

  // Boxes: those of the open verdict, and of its crops those of the step in view.
  function draw(chosen = "") {
    for (const mark of all(".lay .mark, .strip .mark")) {
      const mine = open && mark.dataset.verdict === open.id;
      mark.classList.toggle("active", Boolean(mine));
      mark.classList.toggle("now", mark.dataset.step !== "" && mark.dataset.step === (step ?? seen)?.id);
      mark.classList.toggle("chosen", chosen !== "" && mark.dataset.mark === chosen);
    }
    compare?.classList.toggle("crowded", all(".lay .mark.found.active").length > CROWD);
  }

  function choose(turn, { scroll = true, address = true } = {}) {
    step = turn;
    for (const other of all(".turn")) {
      other.classList.toggle("current", other === turn);
      if (other === turn) other.setAttribute("aria-current", "step"); else other.removeAttribute("aria-current");
    }
    const verdict = turn?.closest(".verdict");
    there.back = null;
    if (verdict) show(verdict);
    if (!turn) return;
    if (address) history.replaceState(null, "", `#${turn.id}`);
    turn.focus({ preventScroll: true });
    if (scroll) turn.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
  }

  function follow() {
    let id = "";
    try { id = decodeURIComponent(location.hash.slice(1)); } catch { /* no address of ours */ }
    const target = id ? document.getElementById(id) : null;
    if (target?.matches(".turn")) choose(target, { address: false });
    else if (target?.matches(".verdict")) { step = null; show(target); }
    else if (!open) show(verdicts[0]);
  }

  function walk(by) {
    const turns = all(".turn", open ?? document);
    if (!turns.length) return;
    const at = turns.indexOf(step);
    choose(turns[at < 0 ? (by > 0 ? 0 : turns.length - 1) : Math.min(turns.length - 1, Math.max(0, at + by))]);
  }

  function change(by, focus = false) {
    if (!verdicts.length) return;
    const next = verdicts[(verdicts.indexOf(open) + by + verdicts.length) % verdicts.length];
    step = null;
    choose(null);
    show(next);
    history.replaceState(null, "", `#${next.id}`);
    if (focus) one(`a.cell[href="#${next.id}"]`)?.focus();
  }

  function putBeside() {
    if (!open?.dataset.beside) return;
    beside = !beside;
    const kept = open;
    show(kept);
    if (beside) document.getElementById("verdicts").scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
  }

  document.addEventListener("click", (event) => {
    const cell = event.target.closest("a.cell");
    if (cell) {
      event.preventDefault();
      choose(null);
      show(document.getElementById(cell.hash.slice(1)));
      history.replaceState(null, "", `#${open.id}`);
      return;
    }
    if (event.target.closest("button.beside")) return putBeside();
    const link = event.target.closest("a[data-mark]");
    const named = link && `.mark[data-mark="${CSS.escape(link.dataset.mark)}"]`;
    const turned = link && !one(`.lay ${named}`) && one(`.strip ${named}`)?.closest("li");
    // On an image of a chain that the panes do not show: the turn that made it, or for the source the first one.
    const figure = turned && [turned, turned.nextElementSibling].map((item) => item && one("figure:has(.turn-pair)", item)).find(Boolean);
    if (figure) pair(figure);
    const mark = link && one(`.lay ${named}`);
    if (link && mark) {
      event.preventDefault();
      const turn = link.closest(".turn");
      if (turn) choose(turn, { scroll: false });
      const rect = one("rect", mark), get = (name) => Number(rect.getAttribute(name));
      const box = mark.ownerSVGElement.viewBox.baseVal;
      draw(link.dataset.mark);
      look.focusOn(get("x"), get("y"), get("x") + get("width"), get("y") + get("height"), box.width, box.height);
      if (compare.getBoundingClientRect().top < 0 || compare.getBoundingClientRect().top > innerHeight / 2) compare.scrollIntoView({ block: "start" });
      return;
    }
    const turn = event.target.closest(".turn");
    if (turn && !event.target.closest("a:not(h3 a), summary, button") && getSelection().isCollapsed) {
      if (event.target.closest("h3 a")) event.preventDefault();
      choose(turn, { scroll: false });
    }
  });

  // The step that is read: the last one whose beginning is in the upper part of the window.
  addEventListener("scroll", () => {
    const now = all(".turn", open ?? document).findLast((turn) => turn.getBoundingClientRect().top < innerHeight / 2);
    const visible = now && now.getBoundingClientRect().bottom > 0 ? now : null;
    if (visible === seen) return;
    seen = visible;
    draw();
  }, { passive: true });

  const go = (id) => { const link = document.getElementById(id); if (!link.hidden) link.click(); };

  document.addEventListener("keydown", (event) => {
    if (event.target.matches("a.cell") && ["ArrowLeft", "ArrowRight"].includes(event.key)) {
      event.preventDefault();
      change(event.key === "ArrowRight" ? 1 : -1, true);
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox], [type=radio], [type=range]), select, textarea") || one("dialog[open]")) return;
    const keys = {
      j: () => walk(1), k: () => walk(-1), "]": () => change(1), "[": () => change(-1),
      n: () => go("following"), p: () => go("previous"),
      c: putBeside,
      u: () => document.getElementById("up").click(), "?": () => document.getElementById("keys").showModal(),
      ...(source ? {
        s: () => look.mode("side"), w: () => look.mode("swipe"), b: () => look.mode("blink"), d: () => look.mode("difference"),
        z: goThere, "+": look.closer, "=": look.closer, "-": look.farther, 0: look.fit, 1: look.natural,
      } : {}),
    };
    const act = keys[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  const help = document.getElementById("help");
  help.hidden = false;
  help.addEventListener("click", () => document.getElementById("keys").showModal());
  addEventListener("hashchange", follow);
  follow();
  for (const part of all(".ask, .strip")) unfold(part);

  // ---- Previous and next: in the order in which the run's page lists the samples, where it was filtered or sorted.

  try {
    const kept = JSON.parse(sessionStorage.getItem(`editloupe:${location.pathname.replace(/samples\/[^/]*$/, "")}`));
    const at = kept ? kept.slugs.indexOf(document.body.dataset.slug) : -1;
    if (at >= 0) {
      for (const [id, slug] of [["previous", kept.slugs[at - 1]], ["following", kept.slugs[at + 1]]]) {
        const link = document.getElementById(id);
        link.hidden = !slug;
        if (slug) link.href = `${slug}.html`;
      }
      document.getElementById("position").textContent = `${(at + 1).toLocaleString("en")} of ${kept.slugs.length.toLocaleString("en")} listed`;
      document.getElementById("up").href = `../index.html#${kept.query}`;
    }
  } catch { /* no storage: the run's own order stands in the page */ }
})();
