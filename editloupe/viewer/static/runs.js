// The list of runs: sorted by any column, completed run by run where it is served, compared by choice.
"use strict";
(() => {
  const table = document.getElementById("runs");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const key = (row, at) => row.cells[at]?.dataset.sort ?? row.cells[at]?.textContent.trim() ?? "";
  let sort = new URLSearchParams(location.hash.slice(1)).get("sort") || "";

  function order() {
    const at = heads.findIndex((head) => head.textContent === sort.replace(/^-/, ""));
    for (const [n, head] of heads.entries()) head.ariaSort = n !== at ? "none" : sort.startsWith("-") ? "descending" : "ascending";
    if (at < 0) return;
    const sign = sort.startsWith("-") ? -1 : 1;
    const rows = [...body.rows].map((row) => [key(row, at), row]);
    const number = (text) => (text === "" ? NaN : Number(text));
    rows.sort(([a], [b]) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      const apart = number(a) - number(b);
      return sign * (Number.isNaN(apart) ? a.localeCompare(b, undefined, { numeric: true }) : apart);
    });
    body.append(...rows.map(([, row]) => row));
  }

  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      sort = sort === button.textContent ? `-${sort}` : sort === `-${button.textContent}` ? "" : button.textContent;
      history.replaceState(null, "", sort ? `#${new URLSearchParams({ sort })}` : location.pathname);
      if (sort) order(); else location.reload();
    });
  }
  order();

  // Scores take reading a whole run: one after another, the smallest first.
  async function complete() {
    const size = (row) => Number(row.cells[3].dataset.sort);
    for (const row of [...body.querySelectorAll("tr[data-wait]")].sort((a, b) => size(a) - size(b))) {
      try {
        const text = await (await fetch(row.dataset.wait)).text();
        const fresh = document.adoptNode(new DOMParser().parseFromString(text, "text/html").querySelector("#runs tbody tr"));
        for (const at of [1, 2, 6, 7]) row.cells[at].replaceWith(fresh.cells[at].cloneNode(true));
      } catch { row.querySelector(".status").textContent = "cannot be read"; }
      delete row.dataset.wait;
    }
    if (sort) order();
  }
  complete();

  // A link once two runs are chosen: their judges are compared.
  const link = document.querySelector("#choice a");
  if (link) {
    body.addEventListener("change", () => {
      const chosen = [...body.querySelectorAll("input:checked")].map((box) => ["run", box.value]);
      link.href = `compare.html?${new URLSearchParams(chosen)}`;
      link.hidden = chosen.length < 2;
      link.nextElementSibling.hidden = !link.hidden;
    });
  }
})();
