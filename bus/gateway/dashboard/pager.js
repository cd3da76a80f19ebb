import { byID } from "./dom.js";

/** Pager turns pages whose successor only the page before it knows. */
export class Pager {
  #starts = [""]; // of the pages up to this one
  #following = ""; // start of the next page, empty: this is the last
  #turning = false;
  #box;
  #previous;
  #next;

  /** The page has the elements name-pages, name-previous and name-next. */
  constructor(name, onTurn) {
    this.#box = byID(`${name}-pages`);
    this.#previous = byID(`${name}-previous`);
    this.#next = byID(`${name}-next`);
    this.#previous.addEventListener("click", () => this.#turn(() => this.#starts.pop(), onTurn));
    this.#next.addEventListener("click", () => this.#turn(() => this.#starts.push(this.#following), onTurn));
  }

  /** start is where this page begins, empty: at the first entry. */
  get start() {
    return this.#starts.at(-1);
  }

  get number() {
    return this.#starts.length;
  }

  reset() {
    this.#starts = [""];
    this.show("");
  }

  /** show takes the start of the next page from an answer. */
  show(following) {
    this.#turning = false;
    this.#following = following ? String(following) : "";
    const focused = [this.#previous, this.#next].find((button) => button === document.activeElement);
    this.#previous.disabled = this.number === 1;
    this.#next.disabled = !this.#following;
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
