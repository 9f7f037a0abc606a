// Behaviour of the report: draws plots when they come into view, theme toggle, viewer search. The page reads without it.
"use strict";
(() => {
  const root = document.documentElement;
  root.dataset.js = "on";

  // --- theme: follows the system until the reader chooses
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  let printing = false;
  const isDark = () => !printing && (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const toggle = document.getElementById("theme");
  const nameToggle = () => { toggle.textContent = isDark() ? "Light colours" : "Dark colours"; };
  toggle.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; nameToggle(); repaint(); });
  prefersDark.addEventListener("change", () => { nameToggle(); repaint(); });
  nameToggle();

  // --- plots: the library is packed in the page and unpacked when the first plot is needed
  let library = null;
  const loadPlotly = () => {
    library ??= (async () => {
      const packed = Uint8Array.from(atob(document.getElementById("plotly-gzip").textContent), (c) => c.charCodeAt(0));
      const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
      const script = document.createElement("script");
      script.textContent = await new Response(stream).text();
      document.head.append(script);
      return window.Plotly;
    })();
    return library;
  };
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  // Data colours of draw.py, brighter on dark ground.
  const brighter = { "#3574b8": "#6fabe8", "#c0651f": "#ea955a", "#1f877a": "#4fbfae", "#8a5fb4": "#b995e0", "#757e88": "#9aa4af", "#c2453b": "#f07f74" };
  const figureOf = (place) => {
    let text = document.getElementById(`${place.id}-data`).textContent;
    if (isDark()) text = text.replace(/#[0-9a-f]{6}/g, (colour) => brighter[colour] ?? colour);
    const { data, layout } = JSON.parse(text);
    layout.font = { color: css("--text"), family: getComputedStyle(document.body).fontFamily, size: 13 };
    layout.hoverlabel = { bgcolor: css("--surface"), bordercolor: css("--line"), font: { color: css("--text") } };
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis\d*$/.test(key)) Object.assign(layout[key], { gridcolor: css("--line"), linecolor: css("--line") });
    }
    const narrow = place.clientWidth < 520;
    if (narrow) Object.assign(layout.margin, { l: 38, r: 8 });
    const config = { responsive: true, displaylogo: false, displayModeBar: narrow ? false : "hover",
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
    return [data, layout, config];
  };
  const drawn = new Set();
  const draw = async (place) => {
    if (drawn.has(place)) return;
    drawn.add(place);
    try {
      const Plotly = window.Plotly ?? await loadPlotly();
      await Plotly.newPlot(place, ...figureOf(place));
      place.dataset.drawn = "yes";
    } catch (error) {
      place.textContent = `This plot could not be drawn here (${error.message}); its numbers are in the table below.`;
    }
  };
  // Other colours: what is in view is drawn again now, the rest when it comes into view.
  function repaint() {
    for (const place of drawn) { delete place.dataset.drawn; seen.unobserve(place); seen.observe(place); }
    drawn.clear();
  }
  const places = [...document.querySelectorAll(".plot")];
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
  }, { rootMargin: "500px 0px" });
  places.forEach((place) => seen.observe(place));

  // What is in view comes first; the rest follows one by one whenever the browser has nothing else to do. A folded plot has no size yet.
  const whenIdle = window.requestIdleCallback ?? ((work) => setTimeout(work, 50));
  const drawNext = async () => {
    const next = places.find((place) => !drawn.has(place) && place.offsetParent !== null);
    if (!next) return;
    await draw(next);
    whenIdle(drawNext);
  };
  addEventListener("load", () => whenIdle(drawNext));

  // --- printing: light colours, everything open and drawn
  const opened = [];
  addEventListener("beforeprint", () => {
    printing = true;
    for (const details of document.querySelectorAll("details:not([open]):not(.rollout)")) { details.open = true; opened.push(details); }
    drawn.clear();
    places.forEach(draw);
  });
  addEventListener("afterprint", () => {
    printing = false;
    opened.splice(0).forEach((details) => { details.open = false; });
    repaint();
  });

  // --- a link into something folded unfolds it
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    if (target.hidden) clear();
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);

  // --- rollout viewer: search and filters
  const controls = document.getElementById("viewer-controls");
  const rollouts = [...document.querySelectorAll(".rollout")];
  const texts = new Map();
  const textOf = (rollout) => {
    if (!texts.has(rollout)) texts.set(rollout, rollout.textContent.toLowerCase());
    return texts.get(rollout);
  };
  const apply = () => {
    const query = controls.elements.query.value.trim().toLowerCase();
    const { run, outcome, why } = controls.elements;
    let shown = 0;
    for (const rollout of rollouts) {
      const fits = (!run || !run.value || rollout.dataset.run === run.value)
        && (!outcome.value || rollout.dataset.outcome.split("|").includes(outcome.value))
        && (!why.value || rollout.dataset.why.split("|").includes(why.value))
        && (!query || textOf(rollout).includes(query));
      rollout.hidden = !fits;
      shown += fits;
    }
    document.getElementById("viewer-count").textContent = `${shown} of ${rollouts.length} rollouts in this page shown`;
  };
  function clear() { controls.reset(); apply(); }
  if (controls) {
    controls.addEventListener("input", apply);
    controls.addEventListener("submit", (event) => event.preventDefault());
    document.getElementById("viewer-clear").addEventListener("click", clear);
    document.getElementById("viewer-open").addEventListener("click", () => {
      const visible = rollouts.filter((rollout) => !rollout.hidden);
      const open = visible.some((rollout) => !rollout.open);
      visible.forEach((rollout) => { rollout.open = open; });
    });
    apply();
  }
  reveal();
})();
