"use strict";

// Tables: a click on a heading sorts by it, another turns the order round; empty cells stay last.
function compare(a, b, numeric) {
  if (a === "" || b === "") return (a === "") - (b === "");
  return numeric ? Number(a) - Number(b) : a.localeCompare(b, undefined, { numeric: true });
}

function sortTable(button) {
  const head = button.closest("th");
  const table = button.closest("table");
  const column = Number(button.dataset.column);
  const numeric = head.classList.contains("number");
  const before = head.getAttribute("aria-sort");
  const descending = before ? before === "ascending" : numeric;
  for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const value = (row) => row.cells[column].dataset.value;
  const rows = Array.from(body.rows).sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    const order = compare(x, y, numeric);
    return descending && x !== "" && y !== "" ? -order : order;
  });
  body.append(...rows);
}

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sortTable(button));
}

// Theme: follows the system until the reader chooses; pages opened from disk may have no storage.
const root = document.documentElement;

function remembered() {
  try {
    return localStorage.getItem("limbeck-theme");
  } catch {
    return null;
  }
}

function remember(theme) {
  try {
    localStorage.setItem("limbeck-theme", theme);
  } catch {
    return;
  }
}

if (remembered()) root.dataset.theme = remembered();
document.getElementById("theme").addEventListener("click", () => {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
  remember(root.dataset.theme);
});
