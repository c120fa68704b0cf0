// Draws the page's figures. Their colours are names of the style sheet's, so that they follow the theme.
(() => {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const config = { displayModeBar: false, responsive: true, showTips: false };

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

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();
