// One algorithm at one position: the picture, what moves, the byte counters, and the row that is followed.

const state = { axis: "bytes", x: 0, row: data.row, bug: data.wrong.some(Boolean), playing: false };
const runs = () => right.map((run, i) => (state.bug && wrong[i]) || run);
const end = () => Math.max(...runs().map((run) => (state.axis === "bytes" ? run.bytes : run.steps.length)));
const KIB = (n) =>
  n < 1024
    ? `${n} B`
    : n < 2 ** 20
      ? `${(n / 1024).toFixed(n < 10240 ? 1 : 0)} KiB`
      : `${(n / 2 ** 20).toFixed(2)} MiB`;
const short = (v, digits = 3) =>
  Number.isNaN(v) ? "–" : v === -Infinity ? "−∞" : v === 0 ? "0" : v.toPrecision(digits);
const small = (v) =>
  Number.isNaN(v) ? "–" : v === 0 ? "0" : v >= 0.01 ? v.toFixed(3) : v.toExponential(1).replace("e-", "e−");
const range = (a, b) => (b - a === 1 ? `${a}` : `${a}–${b - 1}`);
const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

// --- one panel ---

class Panel {
  constructor(index) {
    this.index = index;
    const name = right[index].name;
    this.count = make("span", { class: "num" });
    this.tag = make("span", { class: "wrongtag" });
    const title = make("h2", { style: `border-color: var(--${name})` }, name, this.tag, this.count);
    this.canvas = make("canvas", {
      tabindex: "0",
      role: "img",
      "aria-label": `${name}: the tensors and the tile of S at this step. Click to choose a row.`,
    });
    this.doing = make("div", { class: "doing" });
    this.bars = make("div", { class: "bars" });
    this.table = make("table");
    this.strips = ["running", "exact"].map(() => make("canvas"));
    const strips = make(
      "div",
      { class: "strips" },
      make("span", { class: "soft" }, "O"),
      this.strips[0],
      make("span", { class: "soft" }, "fp64"),
      this.strips[1],
    );
    this.caption = make("div", { class: "soft", style: "font-size:12.5px;margin-top:10px" });
    this.node = make(
      "article",
      { class: "card panel" },
      title,
      this.canvas,
      this.doing,
      this.bars,
      this.caption,
      this.table,
      strips,
    );
    this.canvas.addEventListener("click", (event) => {
      const y = event.offsetY - this.geometry.top,
        size = this.geometry.size;
      if (y >= 0 && y < size) choose(Math.floor((y / size) * R));
    });
  }
  get run() {
    return runs()[this.index];
  }

  draw() {
    const run = this.run,
      [first, last] = run.moment(state.axis, state.x),
      done = first >= run.steps.length;
    this.tag.textContent = state.bug ? (wrong[this.index] ? "with the bug" : "can't have it") : "";
    this.count.textContent = done ? `done, ${KIB(run.bytes)}` : `step ${last + 1} of ${run.steps.length}`;
    this.node.style.opacity = done ? 0.85 : 1;
    this.picture(run, first, last, done);
    this.words(run, first, last, done);
    this.counters(run, last, done);
    this.values(run, last, done);
  }

  picture(run, first, last, done) {
    const width = this.node.clientWidth - 28 > 0 ? this.canvas.clientWidth : 330;
    const names = run.tensors.map((t) => t.name);
    const beside = (run) => RIGHT.filter((name) => run.index(name) >= 0);
    const thin = (name) => (["m", "l", "LSE"].includes(name) ? 6 : 16);
    const room = (name) => ({ m: 13, l: 13, O_acc: 36, O: 22, LSE: 24 })[name];
    const sum = (run) => beside(run).reduce((total, name) => total + room(name), 0);
    const gap = 6,
      left = 16 + gap + 15,
      top = 2 * (14 + gap) + 18;
    // The same matrix in every panel.
    const size = Math.min(width - left - Math.max(...right.map(sum)) - gap, 320);
    const x0 = left + Math.max(0, (width - left - sum(run) - gap - size) / 2);
    this.geometry = { top, size };
    const c = prepare(this.canvas, width, top + size + 22);
    const yOf = (row) => top + (row / R) * size,
      xOf = (key) => x0 + (key / N) * size;
    const ink = css("--soft");
    c.font = "11.5px system-ui, sans-serif";
    c.textBaseline = "middle";
    const strip = (name, x, y, w, h) => {
      c.fillStyle = css("--tensor");
      c.fillRect(x, y, w, h);
    };
    const boxes = {};
    const label = (text, x, y, align = "center") => {
      c.fillStyle = ink;
      c.textAlign = align;
      c.fillText(text, x, y);
    };
    // K and V lie along the keys, all others along the rows.
    ["K", "V"].forEach((name, i) => {
      const y = 16 + i * (14 + gap);
      boxes[name] = (r0, r1) => [xOf(r0), y, xOf(r1) - xOf(r0), 14];
      strip(name, ...boxes[name](0, N));
      label(name, x0 - 6, y + 7, "right");
    });
    const qx = x0 - gap - 16;
    boxes.Q = (r0, r1) => [qx, yOf(r0), 16, yOf(r1) - yOf(r0)];
    strip("Q", ...boxes.Q(0, R));
    label("Q", qx - 2, top + size / 2, "right");
    let x = x0 + size + gap;
    for (const name of beside(run)) {
      const w = thin(name),
        at = x + (room(name) - w) / 2;
      boxes[name] = (r0, r1) => [at, yOf(r0), w, yOf(r1) - yOf(r0)];
      strip(name, ...boxes[name](0, R));
      label(name, at + w / 2, top - 9);
      x += room(name);
    }
    const onMatrix = (t) => [xOf(t[5]), yOf(t[3]), xOf(t[6]) - xOf(t[5]), yOf(t[4]) - yOf(t[3])];
    const boxOf = (t) => {
      const name = names[t[0]];
      return name === "S" || name === "P" ? onMatrix(t) : boxes[name](t[3], t[4]);
    };

    // The matrix: what standard attention has in HBM, what flash attention only passed through.
    c.fillStyle = css("--tensor");
    c.fillRect(x0, top, size, size);
    this.hidden(c, xOf, yOf, size, x0, top);
    c.imageSmoothingEnabled = size * (window.devicePixelRatio || 1) < N; // small pictures are averaged, large ones stay sharp
    c.imageSmoothingQuality = "high";
    const paste = (kind, t, alpha = 1) => {
      const [bx, by, bw, bh] = onMatrix(t);
      c.globalAlpha = alpha;
      c.drawImage(run.image(kind), t[5], t[3], t[6] - t[5], t[4] - t[3], bx, by, bw, bh);
      c.globalAlpha = 1;
    };
    const inHbm = names.includes("S");
    const until = done ? run.steps.length - 1 : last;
    for (let k = 0; k <= until; k++) {
      const step = run.steps[k];
      if (inHbm) {
        for (const t of step.touches) {
          if (t[1] && names[t[0]] === "S") paste("S", t);
          if (t[1] && names[t[0]] === "P") {
            c.fillStyle = css("--tensor");
            c.fillRect(...onMatrix(t));
            paste("P", t);
          }
        }
      } else if (step.computed & COMPUTES.O) {
        const [bx, by, bw, bh] = onMatrix([0, 0, 0, ...step.rows, ...step.keys]);
        c.globalAlpha = 0.22;
        c.fillStyle = css("--kept");
        c.fillRect(bx, by, bw, bh);
        c.globalAlpha = 1;
        c.strokeStyle = css("--card");
        c.strokeRect(bx + 0.5, by + 0.5, bw - 1, bh - 1);
      }
      // What was written lies in HBM.
      for (const t of step.touches)
        if (t[1] && !["S", "P"].includes(names[t[0]])) {
          c.fillStyle = css("--kept");
          c.fillRect(...boxOf(t));
        }
    }
    if (!done) {
      const held = run.onChip(last);
      for (const [name, t] of held) {
        if (name === "S" || name === "P") {
          const [bx, by, bw, bh] = onMatrix(t);
          c.fillStyle = css("--card");
          c.fillRect(bx, by, bw, bh);
          paste(name, t);
          c.strokeStyle = css("--ink");
          c.lineWidth = 2;
          c.strokeRect(bx + 1, by + 1, bw - 2, Math.max(1, bh - 2));
          c.lineWidth = 1;
        } else if (boxes[name] && !(name === "O" && boxes.O_acc)) {
          c.fillStyle = css("--chip");
          c.fillRect(...boxes[name](t[3], t[4]));
        }
      }
      for (let k = first; k <= last; k++) {
        for (const t of run.steps[k].touches) {
          const [bx, by, bw, bh] = boxOf(t),
            onTile = ["S", "P"].includes(names[t[0]]);
          c.fillStyle = css(t[1] ? "--write" : "--read");
          if (onTile) {
            c.strokeStyle = c.fillStyle;
            c.lineWidth = 3;
            c.strokeRect(bx + 1.5, by + 1.5, bw - 3, Math.max(1, bh - 3));
            c.lineWidth = 1;
          } else c.fillRect(bx, by, bw, bh);
        }
      }
    }
    c.strokeStyle = css("--kept");
    c.setLineDash(inHbm ? [] : [4, 4]);
    c.strokeRect(x0 + 0.5, top + 0.5, size - 1, size - 1);
    c.setLineDash([]);
    label(inHbm ? "S, then P, in HBM" : "S and P stay on chip, a tile at a time", x0 + size / 2, top + size + 13);
    // The row that is followed.
    c.strokeStyle = css("--ink");
    c.beginPath();
    c.moveTo(qx - 1, yOf(state.row + 0.5));
    c.lineTo(x, yOf(state.row + 0.5));
    c.globalAlpha = 0.55;
    c.stroke();
    c.globalAlpha = 1;
  }

  hidden(c, xOf, yOf, size, x0, top) {
    if (!data.causal) return;
    const diagonal = N - R;
    c.save();
    c.beginPath();
    c.moveTo(xOf(Math.max(0, diagonal)), top);
    c.lineTo(x0 + size, top);
    c.lineTo(x0 + size, yOf(R));
    c.closePath();
    c.clip();
    c.strokeStyle = css("--kept");
    c.globalAlpha = 0.35;
    c.beginPath();
    for (let d = -size; d < size; d += 6) {
      c.moveTo(x0 + d, top);
      c.lineTo(x0 + d + size, top + size);
    }
    c.stroke();
    c.restore();
  }

  words(run, first, last, done) {
    this.doing.replaceChildren();
    if (done) {
      const verdict = run.passed
        ? "O is attention in float64 to within what the number format explains."
        : "O is not the result of attention.";
      this.doing.append(
        make("b", {}, "All of O is in HBM. "),
        make("span", { class: run.passed ? "ok" : "bad" }, verdict),
      );
      return;
    }
    const parts = [];
    for (let k = first; k <= last; k++) parts.push(run.steps[k].text);
    const step = run.steps[last];
    this.doing.append(
      make("b", {}, [...new Set(parts)].join(", ")),
      make("span", { class: "soft" }, ` ${step.kernel}, CTA ${step.cta}`),
    );
    const moves = make("div", { class: "moves" });
    for (const [op, label] of [
      [0, "HBM → chip"],
      [1, "chip → HBM"],
    ]) {
      const moved = run.steps
        .slice(first, last + 1)
        .flatMap((s) => s.touches.filter((t) => t[1] === op).map((t) => [run.tensors[t[0]].name, t]));
      if (moved.length)
        moves.append(make("span", { class: op ? "out" : "in" }, label), make("span", {}, together(moved)));
    }
    const held = together([...run.onChip(last)]);
    if (held) moves.append(make("span", { class: "soft" }, "on chip"), make("span", { class: "soft" }, held));
    this.doing.append(moves);
  }

  counters(run, last, done) {
    const moved = run.moved[done ? run.steps.length : last + 1];
    const scale = Math.max(
      ...runs().flatMap((r) => r.tensors.map((_, i) => r.moved.at(-1)[2 * i] + r.moved.at(-1)[2 * i + 1])),
    );
    this.bars.replaceChildren();
    run.tensors.forEach((tensor, i) => {
      const bar = make("span", { class: "bar" });
      [
        ["--read", moved[2 * i]],
        ["--write", moved[2 * i + 1]],
      ].forEach(([color, n]) =>
        bar.append(make("i", { style: `width:${(100 * n) / scale}%;background:var(${color})` })),
      );
      this.bars.append(
        make("span", {}, tensor.name),
        bar,
        make("span", { class: "num" }, KIB(moved[2 * i] + moved[2 * i + 1])),
      );
    });
    const total = run.total[done ? run.steps.length : last + 1],
      most = Math.max(...runs().map((r) => r.bytes));
    const bar = make(
      "span",
      { class: "bar total", style: "padding:0" },
      make("i", { style: `width:${(100 * total) / most}%;background:var(--${run.name})` }),
    );
    this.bars.append(make("span", { class: "total" }, "all"), bar, make("span", { class: "num total" }, KIB(total)));
  }

  values(run, last, done) {
    const at = done ? run.steps.length : last,
      base = state.row * T,
      head = make("tr");
    this.caption.textContent = `Row ${state.row}, after each tile of K and V`;
    const rescales = run.factor.some((v) => !Number.isNaN(v));
    for (const title of ["keys", "m", "l", ...(rescales ? ["rescale"] : []), "|O − fp64|"])
      head.append(make("th", {}, title));
    const lines = [head];
    let newest = -1,
      shown = -1;
    for (let t = 0; t < T; t++) {
      const o = run.outputStep[base + t],
        s = run.stateStep[base + t];
      if (o < 0 && s < 0) continue;
      const hasState = s >= 0 && s <= at,
        hasOutput = o >= 0 && o <= at;
      const line = make(
        "tr",
        {},
        make("td", {}, range(t * BN, Math.min(N, (t + 1) * BN))),
        make("td", {}, hasState ? short(run.m[base + t], 4) : s < 0 ? "" : "·"),
        make("td", {}, hasState ? short(run.l[base + t], 4) : s < 0 ? "" : "·"),
        ...(rescales ? [make("td", {}, hasState ? `× ${short(run.factor[base + t], 3)}` : "·")] : []),
        make("td", {}, hasOutput ? small(run.error[base + t]) : "·"),
      );
      if (!hasState && !hasOutput) line.className = "ahead";
      if (hasOutput) shown = t;
      if (Math.max(hasState ? s : -1, hasOutput ? o : -1) > newest) {
        newest = Math.max(hasState ? s : -1, hasOutput ? o : -1);
        this.now = lines.length;
      }
      lines.push(line);
    }
    if (newest >= 0 && lines[this.now]) lines[this.now].classList.add("now");
    this.table.replaceChildren(...lines);
    colours(this.strips[0], shown < 0 ? null : run.O.subarray((base + shown) * D, (base + shown + 1) * D));
    colours(this.strips[1], exact.subarray(state.row * D, (state.row + 1) * D));
  }
}

// Tensors and their rows in words: "Q, O 64–127, K 0–63, S 64–127 × 0–63".
function together(touched) {
  const places = new Map();
  for (const [name, t] of touched) {
    const place = range(t[3], t[4]) + (name === "S" || name === "P" ? ` × ${range(t[5], t[6])}` : "");
    places.set(place, [...(places.get(place) || []), name]);
  }
  return [...places].map(([place, names]) => `${names.join(", ")} ${place}`).join("; ");
}

function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

// A row of O as colours: blue below zero, orange above; the scale is the exact row's.
function colours(canvas, values) {
  const width = canvas.clientWidth || 250,
    c = prepare(canvas, width, 15);
  c.fillStyle = css("--tensor");
  c.fillRect(0, 0, width, 15);
  if (!values) return;
  let scale = 0;
  for (let d = 0; d < D; d++) scale = Math.max(scale, Math.abs(exact[state.row * D + d]));
  const low = css("--read"),
    high = css("--write");
  values.forEach((v, d) => {
    c.globalAlpha = Math.min(1, Math.abs(v) / (scale || 1)) || 0;
    c.fillStyle = v < 0 ? low : high;
    c.fillRect((d / D) * width, 0, width / D + 0.5, 15);
  });
  c.globalAlpha = 1;
}
