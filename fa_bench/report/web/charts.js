// How the row converges, and the error of every row.

function axes(c, box, low, high, xTicks, xLabel) {
  c.font = "11.5px system-ui, sans-serif";
  c.fillStyle = css("--soft");
  c.strokeStyle = css("--line");
  c.textAlign = "right";
  c.textBaseline = "middle";
  for (let e = low; e <= high; e++) {
    const y = box.y + box.h * (1 - (e - low) / (high - low));
    c.beginPath();
    c.moveTo(box.x, y);
    c.lineTo(box.x + box.w, y);
    c.stroke();
    c.fillText(`1e${e < 0 ? "−" : ""}${Math.abs(e)}`, box.x - 6, y);
  }
  c.textBaseline = "top";
  for (const [value, text] of xTicks) {
    c.textAlign = value === 1 ? "right" : "center";
    c.fillText(text, box.x + box.w * value, box.y + box.h + 5);
  }
  c.textAlign = "right";
  c.fillText(xLabel, box.x + box.w, box.y + box.h + 19);
}

function convergence() {
  const canvas = $("convergence"),
    width = canvas.clientWidth,
    c = prepare(canvas, width, 230);
  const box = { x: 46, y: 8, w: width - 60, h: 178 },
    most = end(),
    low = -6,
    high = 1;
  const yOf = (v) => box.y + box.h * (1 - (Math.min(high, Math.max(low, Math.log10(v || 1e-9))) - low) / (high - low));
  const xOf = (run, step) => box.x + (box.w * (state.axis === "bytes" ? run.total[step + 1] : step + 1)) / most;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((f) => [
    f,
    state.axis === "bytes" ? KIB(Math.round(f * most)) : `${Math.round(f * most)}`,
  ]);
  axes(c, box, low, high, ticks, state.axis === "bytes" ? "bytes moved" : "steps done");
  runs().forEach((run, i) => {
    const base = state.row * T,
      dash = [[], [7, 4], [2, 3]][i % 3];
    c.strokeStyle = c.fillStyle = css(`--${run.name}`);
    c.lineWidth = 2.2;
    c.setLineDash(dash);
    c.beginPath();
    let started = false,
      x = 0,
      y = 0;
    for (let t = 0; t < T; t++) {
      const step = run.outputStep[base + t];
      if (step < 0 || Number.isNaN(run.error[base + t])) continue;
      const nx = xOf(run, step),
        ny = yOf(run.error[base + t]);
      if (started) {
        c.lineTo(nx, y);
        c.lineTo(nx, ny);
      } else c.moveTo(nx, ny);
      [x, y, started] = [nx, ny, true];
    }
    if (started) c.lineTo(box.x + box.w, y);
    c.stroke();
    c.setLineDash([]);
    c.lineWidth = 1;
    for (let t = 0; t < T; t++) {
      const step = run.outputStep[base + t];
      if (step >= 0) {
        c.beginPath();
        c.arc(xOf(run, step), yOf(run.error[base + t]), 3.2, 0, 7);
        c.fill();
      }
    }
    c.textAlign = "right";
    c.textBaseline = "alphabetic";
    c.font = "600 12.5px system-ui, sans-serif";
    c.fillText(run.name, box.x + box.w - 6 - (runs().length - 1 - i) * 66, box.y + 16);
  });
  const here = box.x + (box.w * state.x) / most;
  c.strokeStyle = css("--ink");
  c.beginPath();
  c.moveTo(here, box.y);
  c.lineTo(here, box.y + box.h);
  c.stroke();
  canvas.onclick = (event) => go(Math.round(((event.offsetX - box.x) / box.w) * most));
}

function rowErrors(canvas, index) {
  const width = canvas.clientWidth,
    c = prepare(canvas, width, 200),
    box = { x: 46, y: 8, w: width - 56, h: 150 };
  const all = [...right, ...wrong]
    .flatMap((run) => (run ? [...run.rowError] : []))
    .filter((v) => v > 0 && v < Infinity);
  const low = Math.floor(Math.log10(Math.min(...all))),
    high = Math.max(low + 2, Math.ceil(Math.log10(Math.max(...all)))),
    yOf = (v) => box.y + box.h * (1 - (Math.min(high, Math.max(low, Math.log10(v || 1e-9))) - low) / (high - low));
  axes(
    c,
    box,
    low,
    high,
    [
      [0, "0"],
      [0.5, `${R / 2}`],
      [1, `${R}`],
    ],
    "row of O",
  );
  const plot = (run, color) => {
    c.fillStyle = color;
    run.rowError.forEach((v, i) => {
      const y = yOf(v);
      c.fillRect(box.x + (box.w * i) / R, y - 1, Math.max(1.5, box.w / R - 0.3), 2.4);
    });
  };
  plot(right[index], css("--kept"));
  if (wrong[index]) plot(wrong[index], css("--wrong"));
  c.strokeStyle = css("--ink");
  const x = box.x + (box.w * (state.row + 0.5)) / R;
  c.globalAlpha = 0.5;
  c.beginPath();
  c.moveTo(x, box.y);
  c.lineTo(x, box.y + box.h);
  c.stroke();
  c.globalAlpha = 1;
  canvas.onclick = (event) => choose(Math.floor(((event.offsetX - box.x) / box.w) * R));
}
