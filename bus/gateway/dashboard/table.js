import { element, Keyed } from "./dom.js";

/**
 * Table fills a <table>, a row for each item. On small screens its rows become
 * cards (style.css), which takes the roles of a table away in some browsers:
 * hence they are given here.
 */
export class Table {
  #rows;

  /** A column has a name and fill(cell, item); the first one names the row. */
  constructor(table, columns, key, mark) {
    const names = columns.map(({ name }) => element("th", { scope: "col", role: "columnheader" }, name));
    const body = element("tbody", { role: "rowgroup" });
    table.setAttribute("role", "table");
    table.append(
      element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...names)),
      body);
    this.#rows = new Keyed(body, key, () => new Row(columns, mark));
  }

  show(items) {
    this.#rows.show(items);
  }
}

class Row {
  #columns;
  #cells;
  #mark;

  constructor(columns, mark) {
    this.#columns = columns;
    this.#mark = mark;
    this.#cells = columns.map(({ name }, i) => i === 0
      ? element("th", { scope: "row", role: "rowheader" })
      : element("td", { role: "cell", "data-name": name }));
    this.element = element("tr", { role: "row" }, ...this.#cells);
  }

  update(item) {
    this.#mark(this.element, item);
    for (const [i, { fill }] of this.#columns.entries()) fill(this.#cells[i], item);
  }
}

/** lines shows parts of a cell one below the other, each of them { text, class, title }, and only what is there. */
export function lines(cell, ...parts) {
  const wanted = parts.filter((part) => part?.text);
  while (cell.childElementCount > wanted.length) cell.lastElementChild.remove();
  while (cell.childElementCount < wanted.length) cell.append(element("div"));
  for (const [i, part] of wanted.entries()) {
    const line = cell.children[i];
    if (line.textContent !== part.text) line.textContent = part.text;
    line.className = part.class ?? "";
    line.title = part.title ?? "";
  }
}
