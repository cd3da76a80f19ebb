import { byID } from "./dom.js";

const first = { start: "", before: 0 };

/** Pager turns pages whose successor only the page before it knows. */
export class Pager {
  #pages = [first]; // up to this one
  #following = first; // the next page; the first one: this is the last
  #turning = false;
  #box = byID("tags-pages");
  #previous = byID("tags-previous");
  #next = byID("tags-next");

  constructor(onTurn) {
    this.#previous.addEventListener("click", () => this.#turn(() => this.#pages.pop(), onTurn));
    this.#next.addEventListener("click", () => this.#turn(() => this.#pages.push(this.#following), onTurn));
  }

  /** start is where this page begins, empty: at the first entry. */
  get start() {
    return this.#pages.at(-1).start;
  }

  /** before is how many entries the pages before this one had. */
  get before() {
    return this.#pages.at(-1).before;
  }

  reset() {
    this.#pages = [first];
    this.show("", 0);
  }

  /** show takes from an answer where the next page begins, and how many entries this one has. */
  show(following, size) {
    this.#turning = false;
    this.#following = following ? { start: String(following), before: this.before + size } : first;
    const focused = [this.#previous, this.#next].find((button) => button === document.activeElement);
    this.#previous.disabled = this.#pages.length === 1;
    this.#next.disabled = this.#following === first;
    this.#box.hidden = this.#previous.disabled && this.#next.disabled;
    if (focused?.disabled) (focused === this.#next ? this.#previous : this.#next).focus(); // not lost to the keyboard
  }

  #turn(move, onTurn) {
    if (this.#turning) return;
    this.#turning = true; // until the page is there
    move();
    onTurn();
  }
}
