// The page's data: one algorithm's steps and arrays, what it holds and has moved at a step, its scores as an image.
"use strict";
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const { rows: R, keys: N, tiles: T, dim: D, block_n: BN } = data;

const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const floats = (text) => new Float32Array(bytesOf(text).buffer);
const shorts = (text) => new Int16Array(bytesOf(text).buffer);
function halves(text) {
  const bits = new Uint16Array(bytesOf(text).buffer),
    out = new Float32Array(bits.length);
  bits.forEach((h, i) => {
    const e = (h >> 10) & 31,
      f = h & 1023,
      sign = h >> 15 ? -1 : 1;
    out[i] = sign * (e === 31 ? (f ? NaN : Infinity) : e ? (1 + f / 1024) * 2 ** (e - 15) : f * 2 ** -24);
  });
  return out;
}
const exact = halves(data.exact);

const COMPUTES = { S: 1, state: 2, P: 4, O: 8 };
const RIGHT = ["m", "l", "O_acc", "O", "LSE"]; // beside the matrix, one number or row per query
class Run {
  constructor(raw) {
    Object.assign(this, raw);
    for (const key of ["m", "l", "factor", "error", "rowError"]) this[key] = floats(raw[key]);
    this.O = halves(raw.O);
    this.S = bytesOf(raw.S);
    this.stateStep = shorts(raw.stateStep);
    this.outputStep = shorts(raw.outputStep);
    // Bytes of each tensor and direction, and of all, after each step; index 0 is before the first.
    const width = 2 * this.tensors.length;
    this.moved = [new Float64Array(width)];
    this.total = [0];
    for (const step of this.steps) {
      const now = this.moved.at(-1).slice();
      let sum = 0;
      for (const t of step.touches) {
        now[2 * t[0] + t[1]] += t[2];
        sum += t[2];
      }
      this.moved.push(now);
      this.total.push(this.total.at(-1) + sum);
    }
    this.images = {};
  }
  get bytes() {
    return this.total.at(-1);
  }
  index(name) {
    return this.tensors.findIndex((t) => t.name === name);
  }
  // First and last step that are shown at a position; steps that move nothing belong to the one before.
  moment(axis, x) {
    const n = this.steps.length;
    if (axis === "steps") return x >= n ? [n, n] : [x, x];
    if (x >= this.bytes) return [n, n];
    let first = 0;
    while (first + 1 < n && this.total[first + 1] <= x) first++;
    let last = first;
    while (last + 1 < n && this.total[last + 2] === this.total[last + 1]) last++;
    return [first, last];
  }
  // What the CTA holds at step k: tensor -> rows and columns, read last and not replaced since.
  onChip(k) {
    const held = new Map(),
      { kernel, cta } = this.steps[k];
    let first = k;
    while (first > 0 && this.steps[first - 1].kernel === kernel && this.steps[first - 1].cta === cta) first--;
    for (let i = first; i <= k; i++) {
      for (const t of this.steps[i].touches) if (t[1] === 0) held.set(this.tensors[t[0]].name, t);
      const c = this.steps[i];
      // P takes the place of S.
      if (c.computed & COMPUTES.S) {
        held.delete("P");
        held.set("S", [0, 0, 0, ...c.rows, ...c.keys]);
      }
      if (c.computed & COMPUTES.P) {
        held.delete("S");
        held.set("P", [0, 0, 0, ...c.rows, ...c.keys]);
      }
      if (c.computed & COMPUTES.O) held.set("O", [0, 0, 0, ...c.rows, 0, D]);
    }
    return held;
  }
  image(kind) {
    if (!this.images[kind]) this.images[kind] = heat(this, kind);
    return this.images[kind];
  }
}

// S (its scale) or P (exponentials against the row's last maximum) as an image of R x N pixels.
function heat(run, kind) {
  const canvas = document.createElement("canvas");
  canvas.width = N;
  canvas.height = R;
  const context = canvas.getContext("2d"),
    image = context.createImageData(N, R);
  const color = rgb(css(kind === "S" ? "--ink" : "--p")),
    [low, high] = run.scoreRange;
  for (let i = 0; i < R; i++) {
    let top = -Infinity;
    if (kind === "P") for (let j = 0; j < N; j++) top = Math.max(top, run.S[i * N + j]);
    for (let j = 0; j < N; j++) {
      const s = run.S[i * N + j];
      const unit = (high - low) / 254;
      const value =
        s === 0 ? 0 : kind === "S" ? 0.06 + 0.6 * ((s - 1) / 254) ** 2 : 0.08 + 0.92 * Math.exp(((s - top) * unit) / 2);
      image.data.set([...color, 255 * value], 4 * (i * N + j));
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

const right = data.right.map((raw) => new Run(raw));
const wrong = data.wrong.map((raw) => raw && new Run(raw));
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function rgb(color) {
  const n = parseInt(color.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}
