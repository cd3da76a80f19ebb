import { byID, Keyed, setNotice, setText } from "./dom.js";
import { counted } from "./number.js";
import { Pager } from "./pager.js";
import { Poll, refusal } from "./poll.js";
import { Rates } from "./rate.js";
import { TagView } from "./tag.js";

const typing = 250; // ms without a key before a search begins

/** Tags is the section of tags. It shows the most used, or a page of all or of those that are searched for. */
export class Tags {
  #rates = new Rates(10); // by tag
  #list = new Keyed(byID("tags"), ({ tag }) => tag, () => new TagView(this.#rates));
  #search = byID("search");
  #views = [...document.getElementsByName("tags-view")];
  #chosen = "busiest"; // the view that a search gives way to
  #query = ""; // what is searched for, which the field is ahead of while somebody types
  #pager = new Pager(() => this.#turned());
  #poll = new Poll({
    path: () => (this.#busiest ? "dashboard/busiest" : `dashboard/tags?${new URLSearchParams(this.#question())}`),
    onAnswer: (page) => this.#show(page),
    onFailure: (error) => setNotice(byID("tags-problem"), refusal(error)),
  });

  constructor() {
    for (const view of this.#views) {
      view.addEventListener("change", () => {
        this.#chosen = view.value;
        this.#search.value = this.#query = "";
        this.#restart();
      });
    }
    let timer;
    this.#search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.#searched(), typing);
    });
    this.#poll.start();
  }

  get #busiest() {
    return this.#views.find((view) => view.checked).value === "busiest";
  }

  #question() {
    return { q: this.#query, after: this.#pager.start };
  }

  #searched() {
    this.#query = this.#search.value.trim();
    const wanted = this.#query ? "all" : this.#chosen;
    for (const view of this.#views) view.checked = view.value === wanted;
    this.#restart();
  }

  #restart() {
    this.#pager.reset();
    this.#poll.start();
  }

  #turned() {
    this.#poll.start();
    byID("tags-title").scrollIntoView();
  }

  #show({ tags, next, problem }) {
    setNotice(byID("tags-problem"), problem);
    this.#rates.add(tags.flatMap(({ buffers }) => buffers.map(({ node, tag, taken }) => [node, tag, taken])));
    this.#list.show(tags);
    if (!this.#busiest) this.#pager.show(next);
    setText(byID("tags-note"), problem && tags.length === 0 ? "" : this.#note(tags, next));
  }

  #note(tags, next) {
    const shown = counted(tags.length, "tag");
    if (this.#busiest) {
      if (tags.length === 0) return "No tags yet: leaf tag add NAME makes one";
      const ending = tags.some(({ buffers }) => buffers.some(({ state }) => state === "failing"));
      if (ending) return `${shown}: first those that get no new IDs, then the most used`;
      return tags.length > 1 ? `${shown}, the most used first` : shown;
    }
    const matching = this.#query ? ` with “${this.#query}”` : "";
    if (tags.length === 0) return `No tags${matching}`;
    const from = this.#pager.start ? `, from ${tags[0].tag}` : "";
    return shown + matching + from + (next ? "; more on the next page" : "");
  }
}
