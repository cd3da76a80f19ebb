const points = 120; // two minutes of answers
const svg = "http://www.w3.org/2000/svg";

/** Sparkline draws the latest values of a figure, the newest at the right. */
export class Sparkline {
  #values = [];
  #area = document.createElementNS(svg, "path");
  #line = document.createElementNS(svg, "path");

  constructor(parent) {
    const drawing = document.createElementNS(svg, "svg");
    drawing.setAttribute("class", "sparkline");
    drawing.setAttribute("viewBox", `0 0 ${points - 1} 100`);
    drawing.setAttribute("preserveAspectRatio", "none");
    this.#area.setAttribute("class", "area");
    drawing.append(this.#area, this.#line);
    parent.append(drawing);
  }

  add(value) {
    this.#values = [...this.#values, value].slice(-points);
    const most = Math.max(...this.#values, 1);
    const from = points - this.#values.length;
    const line = this.#values.map((v, i) => `${from + i} ${(95 - (85 * v) / most).toFixed(1)}`).join("L");
    this.#line.setAttribute("d", `M${line}`);
    this.#area.setAttribute("d", `M${from} 100L${line}V100Z`);
  }
}
