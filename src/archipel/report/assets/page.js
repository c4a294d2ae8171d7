"use strict";
// The page of a run. `data` is written beside it by report/page.py; nothing is loaded from elsewhere.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const DASHES = [[], [7, 4], [2, 3], [10, 4, 2, 4], [14, 4], [4, 2, 1, 2], [1, 4], [8, 3, 3, 3]];
  const AXES = { rounds: "round", bytes: "bytes sent so far, in all", privacy: "epsilon paid so far, by whom paid most" };
  const WHOLE = [...Array(12).keys()].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power));
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (i) => css(`--s${i % 8}`);
  const short = (v) => (v == null ? "–" : v === 0 ? "0" : Math.abs(v) >= 1e9 || Math.abs(v) < 1e-3 ? v.toExponential(2)
    : Math.abs(v) >= 1e3 ? Math.round(v).toLocaleString("en") : String(+v.toPrecision(4)));
  const amount = (v) => (Math.abs(v) < 1e3 ? short(v) : Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(v));
  const make = (tag, attributes = {}, ...inside) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...inside);
    return made;
  };

  // --- curves -------------------------------------------------------------------------------------------------------

  const charts = [];

  class Chart {
    constructor(box, spec, number) {
      Object.assign(this, { box, spec, axis: spec.axis ?? "rounds", log: spec.log, shown: spec.series.map(() => true), number });
      this.plot = box.querySelector(".plot");
      const controls = make("div", { class: "controls" });
      const known = Object.keys(AXES).filter((axis) => spec.series.some((s) => s.x[axis]));
      if (known.length > 1) {
        const select = make("select", { id: `axis${number}` }, ...known.map((axis) => make("option", { value: axis }, AXES[axis])));
        select.value = this.axis;
        select.onchange = () => { this.axis = select.value; this.draw(); };
        controls.append(make("label", { for: `axis${number}` }, "against "), select);
      }
      const log = make("input", { type: "checkbox", id: `log${number}` });
      log.checked = this.log;
      log.onchange = () => { this.log = log.checked; this.draw(); };
      const reset = make("button", { type: "button" }, "whole range");
      reset.onclick = () => this.draw();
      controls.append(make("span", {}, log, make("label", { for: `log${number}` }, " logarithmic")), reset);
      this.legend = make("div", { class: "legend" });
      box.insertBefore(controls, this.plot);
      box.insertBefore(this.legend, this.plot);
      this.plot.tabIndex = 0;
      this.plot.onkeydown = (event) => this.key(event);
      this.buttons();
      this.draw();
      new ResizeObserver(() => this.u.setSize(this.size())).observe(this.plot);
    }

    buttons() {
      this.values = this.spec.series.map((series, i) => {
        const sample = document.createElementNS("http://www.w3.org/2000/svg", "svg");
        sample.innerHTML = `<line x1="0" y1="5" x2="30" y2="5" stroke-width="2.5" stroke="var(--s${i % 8})" stroke-dasharray="${DASHES[(i + (i >> 3)) % 8]}"/>`;
        sample.setAttribute("aria-hidden", "true");
        const value = make("output", {}, short(series.mean.at(-1)));
        const button = make("button", { type: "button", "aria-pressed": "true" }, sample, series.name || this.spec.unit, value);
        button.onclick = () => {
          this.shown[i] = !this.shown[i];
          button.setAttribute("aria-pressed", this.shown[i]);
          this.draw();
        };
        this.legend.append(button);
        return value;
      });
    }

    size() {
      const paper = document.documentElement.classList.contains("printed");
      return { width: paper ? 660 : Math.max(this.plot.clientWidth, 280), height: paper ? 260 : this.number ? 250 : 320 };
    }

    draw() {
      const positive = (array) => (this.log ? array.map((v) => (v > 0 ? v : null)) : array);
      const used = this.spec.series.filter((s) => s.x[this.axis]), far = used.map((s) => s.x[this.axis].at(-1));
      const decades = this.axis === "bytes" && Math.max(...far) > 10 * Math.min(...far); // one sends far more than another
      const tables = used.map((s) => {
        const first = decades ? s.x.bytes.findIndex((x) => x > 0) : 0;
        return [s.x[this.axis], positive(s.mean), positive(s.low), positive(s.high)].map((column) => column.slice(first));
      });
      const series = [{}], bands = [];
      for (const s of used) {
        const i = this.spec.series.indexOf(s), at = series.length, show = this.shown[i];
        series.push({ show, stroke: colour(i), width: 2, dash: DASHES[(i + (i >> 3)) % 8], points: { show: s.mean.length < 40, size: 4 } });
        for (const _ of [0, 1]) series.push({ show, stroke: "transparent", width: 0, points: { show: false } });
        if (s.band) bands.push({ series: [at + 2, at + 1], fill: colour(i) + "33" });
      }
      const axis = { stroke: css("--ink"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") }, font: "13px system-ui" };
      const options = {
        ...this.size(), series, bands, legend: { show: false }, cursor: { y: false },
        scales: { x: { time: false, distr: decades ? 3 : 1 }, y: { distr: this.log ? 3 : 1 } },
        axes: [{ ...axis, label: AXES[this.axis], values: (_, ticks) => ticks.map((t) => (t == null ? "" : amount(t))), ...(this.axis === "rounds" ? { incrs: WHOLE } : {}) },
          { ...axis, label: this.spec.unit, size: 70, values: (_, ticks) => ticks.map((t) => (t == null ? "" : short(t))) }],
        hooks: { setCursor: [(u) => this.hover(u)] },
      };
      this.u?.destroy();
      this.used = used.map((s) => this.spec.series.indexOf(s));
      this.u = new uPlot(options, uPlot.join(tables), this.plot);
    }

    hover(u) {
      this.used.forEach((i, place) => {
        const at = u.cursor.idx;
        let value = at == null ? null : u.data[1 + 3 * place][at];
        for (let j = at; value === undefined && j >= 0; j--) value = u.data[1 + 3 * place][j];
        this.values[i].value = short(value ?? this.spec.series[i].mean.at(-1));
      });
    }

    key(event) {
      const u = this.u, { min, max } = u.scales.x, span = max - min;
      const moves = { "+": [min + span / 4, max - span / 4], "-": [min - span / 2, max + span / 2] };
      if (moves[event.key]) u.setScale("x", { min: moves[event.key][0], max: moves[event.key][1] });
      else if (event.key === "0") this.draw();
      else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
        const next = (u.cursor.idx ?? 0) + (event.key === "ArrowRight" ? 1 : -1);
        const at = Math.min(Math.max(next, 0), u.data[0].length - 1);
        u.setCursor({ left: u.valToPos(u.data[0][at], "x"), top: 10 });
      } else return;
      event.preventDefault();
    }
  }

  data.charts.forEach((spec, i) => charts.push(new Chart(document.getElementById(`chart${i}`), spec, i)));
  const again = () => charts.forEach((chart) => chart.draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  const printed = (on) => { document.documentElement.classList.toggle("printed", on); again(); };
  addEventListener("beforeprint", () => printed(true));
  addEventListener("afterprint", () => printed(false));

  // Points that are new, or are now of more seeds, into a curve, by their round.
  const axes = (series) => Object.keys(series.x).filter((axis) => axis !== "rounds");
  const same = (old, now) => old.length === now.length && old.every((series, i) => axes(now[i]).every((axis) => series.x[axis]));
  function join(series, now) {
    const at = new Map(series.x.rounds.map((round, i) => [round, i]));
    now.x.rounds.forEach((round, k) => {
      const i = at.get(round) ?? series.x.rounds.length;
      for (const axis of Object.keys(series.x)) series.x[axis][i] = now.x[axis]?.[k] ?? 0;
      for (const value of ["mean", "low", "high"]) series[value][i] = now[value][k];
    });
    series.band ||= now.band;
  }

  if (data.live) { // a run that goes on says what is new
    const asked = new URLSearchParams(location.search);
    if (data.live !== true) asked.set("since", data.live); // what this page has already
    const source = new EventSource("events?" + asked);
    let numbers = document.querySelector("dl.numbers");
    source.onmessage = (event) => {
      const next = JSON.parse(event.data);
      const other = (chart, i) => !same(chart.spec.series, next.charts[i].series);
      if (next.charts.length !== charts.length || !next.clients !== !data.clients || charts.some(other)) return location.reload();
      numbers.outerHTML = next.cards;
      numbers = document.querySelector("dl.numbers");
      document.querySelector(".lead").textContent = next.lead;
      if (next.clients) refresh(next.clients.rows);
      charts.forEach((chart, i) => { chart.spec.series.forEach((series, j) => join(series, next.charts[i].series[j])); chart.draw(); });
    };
    source.addEventListener("over", () => { source.close(); document.body.dataset.over = "true"; });
  }

  // --- tables that sort and filter ----------------------------------------------------------------------------------

  const PAGE = 25;

  function table(box, { columns, rows }) {
    let order = rows.slice(), sorted = -1, up = true, first = 0;
    const filter = make("input", { type: "search", id: "filter", autocomplete: "off" });
    const said = make("span", { role: "status" });
    const back = make("button", { type: "button" }, "previous"), on = make("button", { type: "button" }, "next");
    const head = make("tr"), body = make("tbody");
    const show = () => {
      body.replaceChildren(...order.slice(first, first + PAGE).map((row) => make("tr", {}, ...row.map((cell, i) =>
        make(i ? "td" : "th", typeof cell === "string" ? { class: "text", ...(i ? {} : { scope: "row" }) } : {}, typeof cell === "number" ? short(cell) : cell ?? "–")))));
      said.textContent = `${order.length ? first + 1 : 0} to ${Math.min(first + PAGE, order.length)} of ${order.length}`;
      back.disabled = first === 0;
      on.disabled = first + PAGE >= order.length;
    };
    const arrange = (stay) => {
      const wanted = filter.value.toLowerCase();
      order = rows.filter((row) => !wanted || row.some((cell) => typeof cell === "string" && cell.toLowerCase().includes(wanted)));
      if (sorted >= 0) {
        const rank = (v) => (v == null ? Infinity : v);
        order.sort((a, b) => {
          const [x, y] = [rank(a[sorted]), rank(b[sorted])];
          const way = typeof x === "string" && typeof y === "string" ? x.localeCompare(y, "en", { numeric: true }) : x < y ? -1 : x > y ? 1 : 0;
          return up ? way : -way;
        });
      }
      if (stay !== true) first = 0;
      show();
    };
    columns.forEach((name, i) => {
      const button = make("button", { type: "button" }, name), words = rows.some((row) => typeof row[i] === "string");
      const cell = make("th", { scope: "col", ...(i && !words ? {} : { class: "text" }) }, button);
      button.onclick = () => {
        up = sorted === i ? !up : true;
        sorted = i;
        [...head.children].forEach((other) => other.removeAttribute("aria-sort"));
        cell.setAttribute("aria-sort", up ? "ascending" : "descending");
        arrange();
      };
      head.append(cell);
    });
    filter.oninput = arrange;
    back.onclick = () => { first -= PAGE; show(); };
    on.onclick = () => { first += PAGE; show(); };
    const controls = make("div", { class: "controls" }, make("label", { for: "filter" }, "find "), filter, said);
    if (rows.length > PAGE) controls.append(back, on);
    box.append(controls, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "clients" }, make("table", {}, make("thead", {}, head), body)));
    show();
    return (next) => { rows = next; arrange(true); };
  }

  const refresh = data.clients && table(document.getElementById("clients"), data.clients);

  // --- who has what -------------------------------------------------------------------------------------------------

  function held(box, { names, classes, counts, caption }) {
    const many = counts.length, thick = Math.max(2, Math.min(20, Math.floor(900 / many))), named = thick >= 12;
    const left = named ? 8 * Math.min(24, Math.max(...names.map((name) => name.length))) + 10 : 4, full = Math.max(320, Math.round(box.clientWidth) || 1000), wide = full - left - 60;
    const most = Math.max(...counts.map((row) => row.reduce((a, b) => a + b, 0))), steps = classes.length;
    const paint = (i) => (steps <= 8 ? `var(--s${i})` : `hsl(${Math.round((360 * i) / steps)} 55% ${i % 2 ? 42 : 62}%)`);
    const safe = (text) => String(text).replace(/[<&"]/g, (c) => ({ "<": "&lt;", "&": "&amp;", '"': "&quot;" })[c]);
    const gap = named ? 3 : thick > 3 ? 1 : 0, parts = [];
    counts.forEach((row, k) => {
      const top = k * (thick + gap), all = row.reduce((a, b) => a + b, 0);
      let at = left;
      if (named) parts.push(`<text x="${left - 6}" y="${top + thick - 3}" text-anchor="end">${safe(names[k].length > 24 ? `${names[k].slice(0, 23)}…` : names[k])}</text>`);
      row.forEach((count, i) => {
        const width = (wide * count) / most;
        if (count) parts.push(`<rect x="${at.toFixed(1)}" y="${top}" width="${Math.max(width - (width > 3 ? 1 : 0), 0.5).toFixed(1)}" height="${thick}" fill="${paint(i)}"><title>${safe(names[k])}: ${count} of ${all}, ${safe(classes[i])}</title></rect>`);
        at += width;
      });
      if (named) parts.push(`<text x="${(at + 6).toFixed(1)}" y="${top + thick - 3}">${all.toLocaleString("en")}</text>`);
    });
    const key = make("p", { class: "legend soft" }, ...classes.slice(0, 64).map((name, i) => {
      const sample = make("i");
      sample.style.background = paint(i);
      return make("span", {}, sample, name);
    }));
    const picture = make("div");
    picture.innerHTML = `<svg viewBox="0 0 ${full} ${many * (thick + gap)}" role="img" aria-label="${safe(caption)}">${parts.join("")}</svg>`;
    box.append(key, picture);
  }

  if (data.held) held(document.getElementById("held"), data.held);

  // --- the network --------------------------------------------------------------------------------------------------

  function settled(count, links) { // neighbours attract, all repel (Fruchterman and Reingold, 1991)
    const x = new Float64Array(count), y = new Float64Array(count), ideal = Math.sqrt(4 / count);
    for (let i = 0; i < count; i++) { x[i] = Math.cos(2 * Math.PI * i / count); y[i] = Math.sin(2 * Math.PI * i / count); }
    if (count < 3) return [x, y];
    const turns = Math.max(60, Math.min(300, 6e7 / (count * count)));
    for (let turn = 0; turn < turns; turn++) {
      const dx = new Float64Array(count), dy = new Float64Array(count), step = 0.2 * (1 - turn / turns);
      for (let i = 0; i < count; i++) for (let j = i + 1; j < count; j++) {
        const a = x[i] - x[j], b = y[i] - y[j], pull = ideal * ideal / Math.max(a * a + b * b, 1e-6);
        dx[i] += a * pull; dy[i] += b * pull; dx[j] -= a * pull; dy[j] -= b * pull;
      }
      for (const [i, j] of links) {
        const a = x[i] - x[j], b = y[i] - y[j], pull = Math.hypot(a, b) / ideal;
        dx[i] -= a * pull; dy[i] -= b * pull; dx[j] += a * pull; dy[j] += b * pull;
      }
      for (let i = 0; i < count; i++) {
        const a = dx[i] - 0.3 * x[i], b = dy[i] - 0.3 * y[i], far = Math.max(Math.hypot(a, b), 1e-9), by = Math.min(far, step) / far;
        x[i] += a * by; y[i] += b * by;
      }
    }
    return [x, y];
  }

  function network(box, { hubs, links, members, names, groups, groupNames, caption }) {
    const [x, y] = settled(hubs.length, links);
    let gap = 2;
    if (members.length) for (let i = 0; i < hubs.length; i++) for (let j = 0; j < i; j++) gap = Math.min(gap, Math.hypot(x[i] - x[j], y[i] - y[j]));
    const low = [Math.min(...x), Math.min(...y)].map((v) => v - (members.length ? gap / 2 : 0.05));
    const high = [Math.max(...x), Math.max(...y)].map((v) => v + (members.length ? gap / 2 : 0.05));
    const scale = 600 / Math.max(high[0] - low[0], high[1] - low[1], 1e-9);
    const at = (a, b) => [20 + (a - low[0]) * scale, 20 + (b - low[1]) * scale];
    const width = 40 + (high[0] - low[0]) * scale, height = 40 + (high[1] - low[1]) * scale;
    const shapes = ["circle", "square", "diamond", "triangle"];
    const dot = ([a, b], size, group, title) => {
      const fill = `fill="var(--s${group % 8})"`, text = `<title>${title.replace(/[<&]/g, (c) => (c === "<" ? "&lt;" : "&amp;"))}</title>`;
      const shape = shapes[(group >> 3) % 4];
      if (shape === "circle") return `<circle cx="${a.toFixed(1)}" cy="${b.toFixed(1)}" r="${size}" ${fill}>${text}</circle>`;
      const corners = { square: [[-1, -1], [1, -1], [1, 1], [-1, 1]], diamond: [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]], triangle: [[0, -1.3], [1.2, 1], [-1.2, 1]] }[shape];
      return `<polygon points="${corners.map(([p, q]) => `${(a + p * size).toFixed(1)},${(b + q * size).toFixed(1)}`).join(" ")}" ${fill}>${text}</polygon>`;
    };
    const parts = links.map(([i, j]) => { const [p, q] = [at(x[i], y[i]), at(x[j], y[j])]; return `<line x1="${p[0].toFixed(1)}" y1="${p[1].toFixed(1)}" x2="${q[0].toFixed(1)}" y2="${q[1].toFixed(1)}"/>`; });
    const size = hubs.length > 200 ? 4 : hubs.length > 60 ? 6 : 8, seen = new Map();
    members.forEach((hub, k) => { // clients around their server, as the seeds of a sunflower
      const place = seen.get(hub) ?? 0, all = members.length / hubs.length, far = 0.42 * gap * Math.sqrt(0.25 + 0.75 * (place + 0.5) / Math.max(all, place + 1));
      seen.set(hub, place + 1);
      const here = at(x[hub] + far * Math.cos(2.399963 * place), y[hub] + far * Math.sin(2.399963 * place)), middle = at(x[hub], y[hub]);
      if (members.length <= 400) parts.push(`<line x1="${middle[0].toFixed(1)}" y1="${middle[1].toFixed(1)}" x2="${here[0].toFixed(1)}" y2="${here[1].toFixed(1)}"/>`);
      parts.push(dot(here, members.length > 400 ? 2.5 : 4, groups[k] ?? 0, names[k] ?? `client ${k}`));
    });
    hubs.forEach((name, i) => {
      const here = at(x[i], y[i]);
      parts.push(members.length ? `<rect x="${(here[0] - size).toFixed(1)}" y="${(here[1] - size).toFixed(1)}" width="${2 * size}" height="${2 * size}" fill="var(--ink)"><title>${name}</title></rect>` : dot(here, size, groups[i] ?? 0, name));
    });
    box.innerHTML = `<svg viewBox="0 0 ${width.toFixed(0)} ${height.toFixed(0)}" role="img" aria-label="${caption.replace(/"/g, "&quot;")}">${parts.join("")}</svg>`;
    const many = new Set(groups).size;
    if (many > 1 && many <= 12) box.append(make("p", { class: "soft" }, "Colours: " + [...new Set(groups)].sort((a, b) => a - b).map((g) => groupNames[g] ?? `cluster ${g}`).join(", ") + "."));
  }

  if (data.network) setTimeout(() => network(document.getElementById("network"), data.network));
})();
