import { byID, Keyed, setNotice, setText } from "./dom.js";
import { count, counted } from "./number.js";
import { Pager } from "./pager.js";
import { Poll, refusal } from "./poll.js";
import { TagRates } from "./rate.js";
import { TagView } from "./tag.js";

const pageSize = 50;
const busiestSize = 20;
const typing = 250; // ms without a key before a search begins

/**
 * Tags is the section of tags. It shows the busiest, of the overview, or a page
 * of all or of those that are searched for.
 */
export class Tags {
  rates = new TagRates();
  #list = new Keyed(byID("tags"), (item) => item.tag, () => new TagView(this.rates));
  #search = byID("search");
  #views = [...document.getElementsByName("tags-view")];
  #chosen = "busiest"; // the view that a search gives way to
  #query = ""; // what is searched for, which the field is ahead of while somebody types
  #pager = new Pager("tags", () => this.#turned());
  #poll;
  #page; // the last answer that was one
  #names = []; // that are asked for in place of a page
  #named = []; // records of the busiest, which may be on no page that is here
  #nodes; // of the last overview
  #ending = []; // of the last overview: the tags that end first

  constructor() {
    this.#poll = new Poll({
      path: () => `dashboard/tags?${new URLSearchParams(this.#question())}`,
      // The busiest come with the overview: where a page is not whole they need only their records.
      every: () => (this.#busiest && this.#page?.next ? 10_000 : 2_000),
      onAnswer: (page) => this.#answered(page),
      onFailure: (error) => setNotice(byID("tags-problem"), refusal(error)),
    });
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
    this.#names = this.#busiest && this.#page?.next ? this.known().slice(0, busiestSize).map(({ tag }) => tag) : [];
    if (this.#names.length > 0) return this.#names.map((name) => ["name", name]);
    return { q: this.#query, after: this.#pager.start, limit: pageSize };
  }

  /** known are the tags that the last answers have, the most used first. */
  known() {
    const items = merge(this.#nodes ?? [], this.#ending, this.#page, this.#named);
    this.rates.add(items.flatMap(({ buffers }) => buffers));
    return this.rates.order(items);
  }

  /** overview takes what the generators hold now. */
  overview({ nodes, ending }) {
    this.#nodes = nodes;
    this.#ending = ending;
    if (this.#busiest) this.#showBusiest();
  }

  #searched() {
    this.#query = this.#search.value.trim();
    const wanted = this.#query ? "all" : this.#chosen;
    for (const view of this.#views) view.checked = view.value === wanted;
    this.#restart();
  }

  #restart() {
    this.#pager.reset();
    this.#page = undefined; // it answers another question
    this.#named = [];
    if (this.#busiest && this.#nodes) this.#showBusiest();
    this.#poll.start();
  }

  #turned() {
    this.#poll.start();
    byID("tags-title").scrollIntoView();
  }

  #answered(page) {
    if (this.#names.length > 0) this.#named = page.tags;
    else this.#page = page;
    const away = page.problem && this.#nodes?.some(({ missing }) => missing?.includes("store")); // the alerts say why
    setNotice(byID("tags-problem"), away ? "The store is unavailable, so max_id, step and unused tags are missing here." : page.problem);
    if (this.#busiest) {
      if (this.#nodes) this.#showBusiest();
      return;
    }
    this.rates.add(page.tags.flatMap(({ buffers }) => buffers));
    this.#list.show(page.tags.map((record) => ({ tag: record.tag, record, buffers: record.buffers })));
    this.#pager.show(page.next, page.tags.length);
    setText(byID("tags-note"), this.#pageNote(page.tags));
  }

  #pageNote(tags) {
    const matching = this.#query ? ` with “${this.#query}”` : "";
    if (tags.length === 0) return this.#page.problem ? "" : `No tags${matching}`;
    const { before } = this.#pager;
    const more = this.#page.next ? "; more on the next page" : "";
    if (before > 0) return `Tags ${count(before + 1)} to ${count(before + tags.length)}${matching}, from ${tags[0].tag}${more}`;
    return more ? `The first ${counted(tags.length, "tag")}${matching}${more}` : counted(tags.length, "tag") + matching;
  }

  #showBusiest() {
    const busiest = this.known().slice(0, busiestSize);
    this.#list.show(busiest);
    setText(byID("tags-note"), this.#busiestNote(busiest.length));
  }

  #busiestNote(shown) {
    const all = this.#page && !this.#page.next && !this.#page.problem ? this.#page.tags.length : undefined;
    if (shown === 0) return all === 0 ? "No tags yet: leaf tag add NAME makes one" : "No tag is in use";
    const order = shown > 1 ? ", the most used first" : "";
    if (shown === all) return counted(shown, "tag") + order;
    if (all > shown) return `${count(shown)} most used of ${counted(all, "tag")}`;
    const inMemory = Math.max(...this.#nodes.map((node) => node.counts.tags));
    if (inMemory <= shown) return `${counted(shown, "tag")} in memory${order}`;
    const least = this.#nodes.length > 1 ? "at least " : ""; // others may hold other tags
    return `${count(shown)} most used of ${least}${counted(inMemory, "tag")} in memory`;
  }
}

/**
 * merge makes one list of the busiest of all generators and of the tags that end first. Where the page of the
 * store's records has all tags, it adds what the busiest leave out: records,
 * errors, generators where the tag is less busy, and tags that nobody uses. Else named
 * are the records that were asked for.
 */
function merge(nodes, ending, page, named) {
  const records = new Map([...(page?.tags ?? []), ...named].map((record) => [record.tag, record]));
  const running = new Set(nodes.map(({ node }) => node));
  const found = new Map();
  for (const { node, busiest } of nodes) {
    for (const buffer of busiest) {
      const item = found.get(buffer.tag) ?? { tag: buffer.tag, record: records.get(buffer.tag), byNode: new Map() };
      found.set(buffer.tag, item);
      item.byNode.set(node, Object.assign(buffer, { node }));
    }
  }
  for (const { tag, buffers } of ending) found.set(tag, { tag, record: records.get(tag), byNode: new Map(buffers.map((buffer) => [buffer.node, buffer])) });
  if (page && !page.next) {
    for (const record of page.tags) {
      if (!found.has(record.tag)) found.set(record.tag, { tag: record.tag, record, byNode: new Map() });
    }
  }
  for (const { record, byNode } of found.values()) {
    for (const buffer of record?.buffers ?? []) {
      const shown = byNode.get(buffer.node);
      if (shown?.state === buffer.state) shown.error = buffer.error;
      else if (!shown && running.has(buffer.node)) byNode.set(buffer.node, buffer);
    }
  }
  return [...found.values()].map(({ tag, record, byNode }) => (
    { tag, record, buffers: [...byNode.values()].sort((a, b) => (a.node < b.node ? -1 : 1)) }));
}
