"use strict";
// Draws each figure from the rows of its table, and makes that table when it is asked for. Texts of the data reach the page as
// text alone (textContent, SVG text of Vega).
(() => {
  const narrow = () => document.documentElement.clientWidth < 560;

  const config = () => ({
    background: null,
    font: 'system-ui, "DejaVu Sans", sans-serif',
    view: { stroke: null },
    axis: { labelColor: "currentColor", titleColor: "currentColor", gridColor: "var(--grid)", domainColor: "var(--line)", tickColor: "var(--line)",
      labelFontSize: narrow() ? 10 : 12, titleFontSize: narrow() ? 11 : 12, titleFontWeight: "normal", titleLimit: narrow() ? 260 : 600, labelLimit: narrow() ? 120 : 300,
      labelOverlap: true },
    legend: { labelColor: "currentColor", titleColor: "currentColor", labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelLimit: narrow() ? 260 : 320,
      columns: Math.max(1, Math.floor((document.documentElement.clientWidth - 60) / (narrow() ? 280 : 240))), symbolSize: 80, rowPadding: 3 },
    axisX: { tickCount: narrow() ? 4 : 8 },
  });

  // A choice as it is drawn: {spec, columns, rows, note}. Of a history the rows are made of the nights and the values.
  const chosen = (figure, i) => {
    const choice = figure.choices[i];
    if (!figure.nights) return choice;
    const at = (name, n) => (choice[name] ? choice[name][n] : null);
    const rows = figure.nights.map((night, n) => [...night, choice.y[n], at("lo", n), at("hi", n), (choice.marks && choice.marks[n]) || ""]);
    const fill = (x) => x.replace("@unit", choice.unit).replace("@y", choice.title);
    const filled = (x) => typeof x === "string" ? fill(x) : Array.isArray(x) ? x.map(filled)
      : x && typeof x === "object" ? Object.fromEntries(Object.entries(x).map(([k, v]) => [k, filled(v)])) : x;
    const better = { less: "Less is better.", more: "More is better." }[choice.better] || "";
    return { spec: filled(figure.spec), columns: figure.columns.map(filled), rows, note: better };
  };

  const objects = (choice) => choice.rows.map((row) => Object.fromEntries(choice.columns.map(([key], i) => [key, row[i]])));

  const element = (name, text, to) => {
    const e = document.createElement(name);
    if (text !== undefined) e.textContent = text;
    if (to) to.append(e);
    return e;
  };

  const number = (x) => {
    if (x === null || x === undefined || x === "") return "";
    if (typeof x !== "number") return String(x);
    const size = Math.abs(x);
    return size !== 0 && (size < 1e-3 || size >= 1e7) ? x.toExponential(3) : String(Number(x.toPrecision(5)));
  };

  const table = (choice, place) => {
    const shown = choice.columns.map(([, title, unit], i) => [i, title, unit]).filter(([, title]) => title);
    const out = document.createElement("table");
    out.className = "data";
    const head = element("tr", undefined, element("thead", undefined, out));
    for (const [, title, unit] of shown) element("th", unit && unit !== title ? `${title} (${unit})` : title, head);
    const body = element("tbody", undefined, out);
    for (const row of choice.rows) {
      const line = element("tr", undefined, body);
      for (const [i] of shown) {
        const cell = element("td", number(row[i]), line);
        if (typeof row[i] === "number") cell.className = "n";
      }
    }
    place.replaceChildren(out);
  };

  const draw = async (section, figure, i) => {
    const choice = chosen(figure, i), plot = section.querySelector(".plot"), note = section.querySelector(".note");
    const spec = { ...choice.spec, datasets: { d: objects(choice) }, autosize: { type: "fit-x", contains: "padding" } };
    if (section.view) section.view.finalize();
    const made = await vegaEmbed(plot, spec, { mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false, config: config(),
      tooltip: { theme: "plain", disableDefaultStyle: true }, logLevel: 1 });
    section.view = made;
    note.hidden = !choice.note;
    note.textContent = choice.note || "";
    const data = section.querySelector("details.data"), place = data.querySelector(".scroll");
    place.replaceChildren();
    const fill = () => { if (data.open && !place.firstChild) table(choice, place); };
    data.ontoggle = fill;
    fill();
  };

  const choose = (section, figure) => {
    if (figure.choices.length < 2) return;
    const place = section.querySelector(".choose"), label = element("label", `${figure.choose}: `, place), select = element("select", undefined, label);
    const options = figure.choices.map((c, i) => { const o = element("option", c.label); o.value = i; return o; });
    const say = () => { label.dataset.chosen = figure.choices[Number(select.value)].label; };
    if (figure.choices.length > 40) {
      const find = document.createElement("input");
      find.type = "search";
      find.placeholder = "words to find";
      find.setAttribute("aria-label", "words that the name holds");
      label.before(find);
      find.addEventListener("input", () => {
        const words = find.value.toLowerCase().split(/\s+/);
        const fit = options.filter((o) => words.every((w) => o.textContent.toLowerCase().includes(w)));
        select.replaceChildren(...fit);
        if (fit.length) select.dispatchEvent(new Event("change"));
      });
    }
    select.append(...options);
    select.addEventListener("change", () => { say(); draw(section, figure, Number(select.value)); });
    say();
    place.hidden = false;
  };

  const all = async () => {
    for (const figure of JSON.parse(document.getElementById("data").textContent)) {
      const section = document.getElementById(figure.name);
      choose(section, figure);
      try {
        await draw(section, figure, 0);
      } catch (error) {
        section.querySelector(".plot").textContent = `This plot could not be drawn: ${error.message}`;
        console.error(error);
      }
    }
    document.documentElement.dataset.drawn = "yes";
  };
  all();
})();
