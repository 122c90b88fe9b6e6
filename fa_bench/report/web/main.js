// Words around the panels, and everything that moves them.

$("case").textContent = data.case;
$("intro").textContent = data.intro;
$("footnote").textContent = data.footnote;
if (data.bug) {
  $("kernels").hidden = !data.wrong.some(Boolean);
  const section = $("lesson");
  section.hidden = false;
  section.append(make("h2", {}, `${data.bug.name}: ${data.bug.title}`), make("p", {}, data.bug.lesson));
  const charts = make("div", { class: "charts" });
  right.forEach((run, i) => {
    const note = data.bug.notes[i],
      diff = data.bug.diffs[i],
      block = make("div", {}, make("b", { style: `color:var(--${run.name})` }, run.name));
    block.append(make("div", { class: "soft", style: "font-size:13px;min-height:40px" }, note));
    block.append(make("canvas", { class: "chart errors", style: "height:200px" }));
    if (diff.length) {
      const pre = make("pre");
      for (const line of diff) {
        const kind = /^(---|\+\+\+|@@)/.test(line) ? "head" : line[0] === "+" ? "plus" : line[0] === "-" ? "minus" : "";
        pre.append(make("span", { class: kind }, `${line}\n`));
      }
      block.append(pre);
    }
    charts.append(block);
  });
  section.append(
    make(
      "p",
      { class: "soft" },
      "Largest error of each row of O against float64: ",
      make("span", { style: "color:var(--kept)" }, "■ right"),
      "  ",
      make("span", { style: "color:var(--wrong)" }, "■ with the bug"),
      ". Click a row to follow it.",
    ),
    charts,
  );
}
{
  const table = make("table"),
    head = make("tr");
  for (const title of ["", "bytes by the formula", "bytes counted", "", "largest error", "explained by the format", ""])
    head.append(make("th", {}, title));
  table.append(head);
  for (const line of data.checks) {
    const cells = line.cells.map((text) => make("td", {}, text));
    cells.splice(3, 0, make("td", { class: line.equal ? "ok" : "bad" }, line.equal ? "equal" : "differ"));
    cells.push(make("td", { class: line.passed ? "ok" : "bad" }, line.passed ? "inside" : "outside"));
    table.append(make("tr", {}, ...cells));
  }
  $("checks").append(table);
}

// --- moving ---

const panels = right.map((_, i) => new Panel(i));
$("panels").append(...panels.map((panel) => panel.node));

function draw() {
  $("at").max = end();
  $("at").value = state.x;
  $("where").textContent =
    state.axis === "bytes"
      ? `each has moved ${KIB(Math.round(state.x))}`
      : `step ${Math.min(state.x + 1, end())} of ${end()}`;
  $("row").value = state.row;
  document.querySelectorAll(".therow").forEach((node) => (node.textContent = state.row));
  panels.forEach((panel) => panel.draw());
  convergence();
  document.querySelectorAll(".errors").forEach(rowErrors);
}
function go(x) {
  state.x = Math.max(0, Math.min(end(), x));
  draw();
}
function choose(row) {
  state.row = Math.max(0, Math.min(R - 1, row || 0));
  draw();
}
function stops() {
  if (state.axis === "steps") return null;
  return [...new Set(runs().flatMap((run) => [...run.total]))].sort((a, b) => a - b);
}
function step(direction) {
  const places = stops();
  if (!places) return go(state.x + direction);
  const next = direction > 0 ? places.find((p) => p > state.x) : places.findLast((p) => p < state.x);
  go(next ?? state.x);
}
function play(on) {
  state.playing = on;
  $("play").textContent = on ? "❚❚ Pause" : "▶ Play";
  if (!on) return;
  if (state.x >= end()) state.x = 0;
  let before = performance.now(),
    fraction = state.x;
  const tick = (now) => {
    if (!state.playing) return;
    if (Math.abs(fraction - state.x) > 1) fraction = state.x;
    const seconds = state.axis === "bytes" ? 40 : Math.max(20, end() / 4);
    fraction += ((now - before) / 1000 / seconds) * end() * Number($("speed").value);
    before = now;
    go(Math.floor(fraction));
    if (state.x >= end()) play(false);
    else requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}
function setAxis(axis) {
  if (axis === state.axis) return;
  const share = state.x / end();
  state.axis = axis;
  state.x = Math.round(share * end());
  $("bybytes").setAttribute("aria-pressed", axis === "bytes");
  $("bysteps").setAttribute("aria-pressed", axis === "steps");
  draw();
}
function setBug(on) {
  state.bug = on;
  $("wrong").setAttribute("aria-pressed", on);
  $("right").setAttribute("aria-pressed", !on);
  draw();
}
$("at").addEventListener("input", () => {
  play(false);
  go(Number($("at").value));
});
$("row").max = R - 1;
$("row").addEventListener("change", () => choose(Number($("row").value)));
$("play").addEventListener("click", () => play(!state.playing));
$("back").addEventListener("click", () => {
  play(false);
  step(-1);
});
$("next").addEventListener("click", () => {
  play(false);
  step(1);
});
$("bybytes").addEventListener("click", () => setAxis("bytes"));
$("bysteps").addEventListener("click", () => setAxis("steps"));
$("wrong").addEventListener("click", () => setBug(true));
$("right").addEventListener("click", () => setBug(false));
document.addEventListener("keydown", (event) => {
  if (["INPUT", "SELECT"].includes(event.target.tagName) && event.target.type !== "range") return;
  const actions = {
    " ": () => play(!state.playing),
    ArrowRight: () => step(1),
    ArrowLeft: () => step(-1),
    ArrowUp: () => choose(state.row - 1),
    ArrowDown: () => choose(state.row + 1),
    Home: () => go(0),
    End: () => go(end()),
    a: () => setAxis(state.axis === "bytes" ? "steps" : "bytes"),
  };
  if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === " " && event.target.tagName === "BUTTON") return;
  event.preventDefault();
  if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") play(false);
  actions[event.key]();
});
let resized = 0;
window.addEventListener("resize", () => {
  cancelAnimationFrame(resized);
  resized = requestAnimationFrame(draw);
});
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  [...right, ...wrong].forEach((run) => run && (run.images = {}));
  draw();
});

// #at=0.3&row=12&axis=steps opens the page there.
const wanted = new URLSearchParams(location.hash.slice(1));
if (wanted.get("axis") === "steps") setAxis("steps");
if (wanted.has("row")) state.row = Math.max(0, Math.min(R - 1, Number(wanted.get("row")) || 0));
state.x = Math.round((Number(wanted.get("at")) || 0) * end());
draw();
