// The first page of annotation: a name leads to the questions of that rater.
"use strict";
document.getElementById("name-form")?.addEventListener("submit", (event) => {
  event.preventDefault(); // the pages' policy lets no form be sent
  const name = document.getElementById("name").value.trim();
  if (name) location.href = `annotate.html?rater=${encodeURIComponent(name)}`;
});
