import { byID } from "./dom.js";

/** Pager turns pages whose successor only the page before it knows. */
export class Pager {
  #starts = [""]; // of the pages up to this one; empty: at the first entry
  #following = ""; // where the next page begins; empty: this is the last
  #turning = false;
  #box = byID("tags-pages");
  #previous = byID("tags-previous");
  #next = byID("tags-next");

  constructor(onTurn) {
    this.#previous.addEventListener("click", () => this.#turn(() => this.#starts.pop(), onTurn));
    this.#next.addEventListener("click", () => this.#turn(() => this.#starts.push(this.#following), onTurn));
  }

  /** start is where this page begins. */
  get start() {
    return this.#starts.at(-1);
  }

  reset() {
    this.#starts = [""];
    this.show("");
  }

  /** show takes from an answer where the next page begins. */
  show(following) {
    this.#turning = false;
    this.#following = following;
    const focused = [this.#previous, this.#next].find((button) => button === document.activeElement);
    this.#previous.disabled = this.#starts.length === 1;
    this.#next.disabled = !following;
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
