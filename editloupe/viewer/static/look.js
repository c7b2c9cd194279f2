// Images in step with each other: one view (zoom and center, as shares of the image) for every frame, and the ways to compare
// the first frame's image with the one laid over it. `editloupeLook(compare, goThere)` wires the element that holds them.
"use strict";
window.editloupeLook = (compare, goThere) => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = (selector, within = document) => within.querySelector(selector);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const frames = compare ? all(".frame", compare) : [];
  const source = frames[0];
  const MOST = 32; // screen pixels an image pixel
  let blinking = 0;
  let pointer = null; // [x, y] in image pixels of the frame under the pointer
  let hovered = null; // [x, y] in shares of that frame
  const look = {
    frames,
    view: { zoom: 1, x: 0.5, y: 0.5 },
    there: { on: "", back: null }, // what the view is on, in words; where it was before
    home: compare?.dataset.home?.split(" ").map(Number), // the place that the page is about, as shares
  };
  const there = look.there;

  const base = (frame) => frame.clientWidth / frame.dataset.width; // screen pixels an image pixel at zoom 1

  look.place = () => {
    if (!source) return;
    const view = look.view, half = 0.5 / view.zoom;
    view.x = Math.min(1 - half, Math.max(half, view.x));
    view.y = Math.min(1 - half, Math.max(half, view.y));
    for (const frame of frames) {
      const move = `translate(${(0.5 - view.x * view.zoom) * 100}%, ${(0.5 - view.y * view.zoom) * 100}%) scale(${view.zoom})`;
      for (const layer of all(".layer", frame)) layer.style.transform = move;
      frame.style.setProperty("--z", view.zoom);
      frame.classList.toggle("zoomed", view.zoom > 1.001);
      for (const svg of all("svg.marks", frame)) svg.style.setProperty("--k", (frame.clientWidth * view.zoom) / svg.viewBox.baseVal.width);
    }
    compare.classList.toggle("crisp", base(source) * view.zoom * devicePixelRatio >= 2);
    look.tell();
  };

  look.tell = () => {
    const percent = Math.round(base(source) * look.view.zoom * 100);
    const where = pointer ? `x ${pointer[0]}, y ${pointer[1]} · ` : "";
    const heading = one(".what", compare);
    const showing = compare.dataset.mode === "blink" ? `${one(".over.on", compare) ? heading.dataset.over : heading.textContent} · `.toLowerCase() : "";
    const at = there.on ? ` · ${there.on}` : "";
    document.getElementById("readout").textContent = `${showing}${where}Zoom ${percent} %${at}`;
  };

  // Where a point of the screen lies in a frame's image, in shares.
  look.shares = (frame, event) => {
    const box = frame.getBoundingClientRect(), view = look.view;
    return [
      view.x + ((event.clientX - box.left) / box.width - 0.5) / view.zoom,
      view.y + ((event.clientY - box.top) / box.height - 0.5) / view.zoom,
    ];
  };

  // Zoom by a factor and keep the point (shares of the frame) where it is.
  look.zoom = (factor, px = 0.5, py = 0.5) => {
    there.on = "";
    const view = look.view, most = Math.max(1, MOST / base(source));
    const next = Math.min(most, Math.max(1, view.zoom * factor));
    const x = view.x + (px - 0.5) / view.zoom, y = view.y + (py - 0.5) / view.zoom;
    look.view = { zoom: next, x: x - (px - 0.5) / next, y: y - (py - 0.5) / next };
    look.place();
  };

  look.fit = () => { there.on = ""; look.view = { zoom: 1, x: 0.5, y: 0.5 }; look.place(); };
  look.natural = () => look.zoom(1 / (base(source) * look.view.zoom * devicePixelRatio));

  // part: of the frame that the box shall take.   limit: screen pixels an image pixel.
  look.focusOn = (x0, y0, x1, y1, width, height, part = 0.6, limit = MOST) => {
    const share = Math.max((x1 - x0) / width, (y1 - y0) / height);
    const most = Math.max(1, limit / base(source));
    look.view = { zoom: Math.min(most, Math.max(1, part / share)), x: (x0 + x1) / 2 / width, y: (y0 + y1) / 2 / height };
    look.place();
  };

  // A place that small is seen with its surroundings.
  look.goHome = () => { there.on = "the target"; look.focusOn(...look.home, 1, 1, 1 / 3, 8); };

  // Closer: at the pointer, else at the place that the page is about where it is in view, else in the middle.
  look.closer = () => {
    const home = look.home;
    if (hovered) return look.zoom(1.5, ...hovered);
    if (!home) return look.zoom(1.5);
    const view = look.view, at = [(home[0] + home[2]) / 2, (home[1] + home[3]) / 2];
    const seen = [(at[0] - view.x) * view.zoom + 0.5, (at[1] - view.y) * view.zoom + 0.5];
    look.zoom(1.5);
    if (seen.every((v) => v >= 0 && v <= 1)) { // and toward the middle
      [look.view.x, look.view.y] = at;
      look.place();
    }
  };

  look.farther = () => look.zoom(1 / 1.5);

  look.mode = (name) => {
    if (!one(".over", compare)) name = "side";
    compare.dataset.mode = name;
    for (const button of all("button[data-mode]", compare)) button.setAttribute("aria-pressed", button.dataset.mode === name);
    const grip = one(".grip", compare);
    if (grip) grip.hidden = name !== "swipe";
    clearInterval(blinking);
    const over = one(".over", compare);
    if (over) over.classList.remove("on");
    if (name === "blink" && over) {
      const flip = () => { over.classList.toggle("on"); look.tell(); };
      if (calm) flip(); else blinking = setInterval(flip, 650);
    }
    look.place();
  };

  look.swipe = (share) => {
    const value = Math.min(100, Math.max(0, share * 100));
    source.style.setProperty("--swipe", `${value}%`);
    document.getElementById("swipe").value = value;
  };

  if (!source) return look;
  for (const frame of frames) {
    frame.style.setProperty("--ratio", frame.dataset.width / frame.dataset.height);
    frame.addEventListener("wheel", (event) => {
      // The wheel scrolls the page, until the image is clicked or Ctrl is held.
      if (!event.ctrlKey && document.activeElement !== frame) return;
      event.preventDefault();
      const box = frame.getBoundingClientRect();
      look.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.06 : 0.0022)), (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    }, { passive: false });
    const fingers = new Map();
    let spread = 0;
    frame.addEventListener("pointerdown", (event) => {
      if (event.target.closest(".grip")) return;
      frame.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, event);
      spread = 0;
      frame.classList.add("dragging");
    });
    frame.addEventListener("pointermove", (event) => {
      const box = frame.getBoundingClientRect(), [u, v] = look.shares(frame, event);
      hovered = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
      pointer = u >= 0 && u < 1 && v >= 0 && v < 1 ? [Math.floor(u * frame.dataset.width), Math.floor(v * frame.dataset.height)] : null;
      const before = fingers.get(event.pointerId);
      if (!before) return look.tell();
      fingers.set(event.pointerId, event);
      if (fingers.size === 2) {
        const [a, b] = [...fingers.values()];
        const now = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
        if (spread) look.zoom(now / spread, ((a.clientX + b.clientX) / 2 - box.left) / box.width, ((a.clientY + b.clientY) / 2 - box.top) / box.height);
        spread = now;
      } else {
        there.back = null;
        look.view.x -= (event.clientX - before.clientX) / box.width / look.view.zoom;
        look.view.y -= (event.clientY - before.clientY) / box.height / look.view.zoom;
        look.place();
      }
    });
    for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, (event) => {
      fingers.delete(event.pointerId);
      spread = 0;
      frame.classList.remove("dragging");
    });
    frame.addEventListener("pointerleave", () => { pointer = hovered = null; look.tell(); });
    frame.addEventListener("dblclick", (event) => {
      const box = frame.getBoundingClientRect();
      if (look.view.zoom > 1.001) look.fit(); else look.zoom(4, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    });
    frame.addEventListener("keydown", (event) => {
      const step = 0.1 / look.view.zoom, moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
      const move = moves[event.key];
      if (!move || event.target !== frame || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      look.view.x += move[0];
      look.view.y += move[1];
      look.place();
    });
  }
  const grip = one(".grip", compare);
  // Only the source has one; where the run did not keep that picture, there is nothing to swipe.
  grip?.addEventListener("pointerdown", (event) => { event.stopPropagation(); grip.setPointerCapture(event.pointerId); });
  grip?.addEventListener("pointermove", (event) => {
    if (!grip.hasPointerCapture(event.pointerId)) return;
    event.stopPropagation();
    const box = source.getBoundingClientRect();
    look.swipe((event.clientX - box.left) / box.width);
  });
  document.getElementById("swipe").addEventListener("input", (event) => look.swipe(event.target.value / 100));
  document.getElementById("gain").addEventListener("input", (event) => {
    source.style.setProperty("--gain", event.target.value);
    document.getElementById("gained").textContent = `×${event.target.value}`;
  });
  compare.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.mode) look.mode(button.dataset.mode);
    if (button?.dataset.zoom) ({ in: look.closer, out: look.farther, fit: look.fit, one: look.natural, there: goThere })[button.dataset.zoom]();
  });
  compare.addEventListener("change", (event) => {
    if (event.target.dataset.show) compare.classList.toggle(`show-${event.target.dataset.show}`, event.target.checked);
  });
  one(".bar", compare).hidden = false;
  new ResizeObserver(look.place).observe(source);
  return look;
};
