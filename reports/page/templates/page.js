"use strict";
(() => {
  const said = document.getElementById("said");
  const key = (row, column) => {
    const cell = row.cells[column];
    return (cell.dataset.sort || cell.textContent).trim();
  };
  const compare = (a, b) => {
    const x = Number.parseFloat(a), y = Number.parseFloat(b);
    const numbers = !Number.isNaN(x) && !Number.isNaN(y);
    return numbers ? x - y : Number.isNaN(x) !== Number.isNaN(y) ? Number.isNaN(x) - Number.isNaN(y) : a.localeCompare(b);
  };
  window.addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("details")) folded.open = true;
  });
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => [key(row, column), row]);
        rows.sort((a, b) => (down ? -1 : 1) * compare(a[0], b[0]));
        body.append(...rows.map((pair) => pair[1]));
        said.textContent = `${head.textContent}: ${down ? "descending" : "ascending"}`;
      });
    });
  }
})();
