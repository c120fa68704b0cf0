// Draws the page's figures, and lets its tables be sorted and filtered. Colours of figures are names of the style sheet's, so
// that they follow the theme.
(() => {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const config = { displayModeBar: false, responsive: true, showTips: false };
  const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;[=]?@^_.{|}~";
  const fewRows = 6;

  // Unpacks the plotting library: base 85, then deflate.
  async function unpacked(text) {
    const begin = text.indexOf(":") + 1;
    const values = new Uint8Array(128);
    for (let number = 0; number < alphabet.length; number += 1) values[alphabet.charCodeAt(number)] = number;
    const bytes = new DataView(new ArrayBuffer(((text.length - begin) / 5) * 4));
    for (let from = begin, to = 0; from < text.length; from += 5, to += 4) {
      let value = 0;
      for (let digit = 0; digit < 5; digit += 1) value = value * 85 + values[text.charCodeAt(from + digit)];
      bytes.setUint32(to, value);
    }
    const packed = new Blob([new Uint8Array(bytes.buffer, 0, Number(text.slice(0, begin - 1)))]);
    return new Response(packed.stream().pipeThrough(new DecompressionStream("deflate"))).text();
  }

  function coloured(value, style) {
    if (typeof value === "string") {
      const name = /^var\((--[a-z0-9-]+)\)$/.exec(value);
      return name ? style.getPropertyValue(name[1]).trim() : value;
    }
    if (Array.isArray(value)) return value.map((one) => coloured(one, style));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, coloured(one, style)]));
    }
    return value;
  }

  function draw() {
    const style = getComputedStyle(document.documentElement);
    const font = { family: getComputedStyle(document.body).fontFamily };
    const drawn = [...document.querySelectorAll("[data-figure]")].map((place) => {
      const figure = coloured(figures[place.dataset.figure], style);
      Object.assign(figure.layout.font, font);
      return Plotly.react(place, figure.data, figure.layout, config);
    });
    Promise.all(drawn).then(() => { document.documentElement.dataset.drawn = String(drawn.length); });
  }

  function sortBy(table, column) {
    const head = table.tHead.rows[0].cells[column];
    const isNumber = head.classList.contains("number");
    const first = isNumber ? "descending" : "ascending";
    const other = isNumber ? "ascending" : "descending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    for (const one of table.tHead.rows[0].cells) one.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const value = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent.trim();
    const compare = (a, b) => value(a).localeCompare(value(b), undefined, { numeric: true });
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => sign * ((isNumber && Number(value(a)) - Number(value(b))) || compare(a, b)));
    table.tBodies[0].append(...rows);
  }

  for (const table of document.querySelectorAll("table[data-sortable]")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      button.addEventListener("click", () => sortBy(table, column));
      head.replaceChildren(button);
    });
    if (table.tBodies[0].rows.length < fewRows) continue;
    const filter = document.createElement("input");
    filter.type = "search";
    filter.className = "filter";
    filter.placeholder = "Filter";
    filter.setAttribute("aria-label", "Filter the rows of the table");
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase();
      for (const row of table.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
    table.parentElement.before(filter);
  }

  unpacked(document.getElementById("library").textContent.trim()).then((source) => {
    const script = document.createElement("script");
    script.textContent = source;
    document.head.append(script);
    script.remove();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    draw();
  });
})();
