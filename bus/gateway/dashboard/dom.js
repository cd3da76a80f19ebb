// What the other modules need of the DOM. Text goes in as text only: names of
// tags and messages of errors may contain anything.

/** byID returns the page's element of that ID. */
export const byID = (id) => document.getElementById(id);

/** element makes an element; children are elements or text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** setText leaves text alone that is right already, and with it what is selected in it. */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/** setNotice shows text in an element that is hidden while there is none. */
export function setNotice(target, text) {
  setText(target, text ?? "");
  target.hidden = !text;
}

/** announce says text to screen readers, which the page shows elsewhere. */
export const announce = (text) => setText(byID("announcer"), text);

/**
 * Keyed keeps one view for each item of a list, so that an item's element stays
 * the same from answer to answer: focus, selection and screen readers survive.
 * A view has an element and update(item).
 */
export class Keyed {
  #parent;
  #key;
  #create;
  #views = new Map();

  constructor(parent, key, create) {
    this.#parent = parent;
    this.#key = key;
    this.#create = create;
  }

  show(items) {
    const wanted = new Map(items.map((item) => [this.#key(item), item]));
    for (const [key, view] of this.#views) {
      if (wanted.has(key)) continue;
      view.element.remove(); // before the rest is put in order, so that it need not move
      this.#views.delete(key);
    }
    let place = this.#parent.firstElementChild;
    for (const [key, item] of wanted) {
      let view = this.#views.get(key);
      if (!view) this.#views.set(key, (view = this.#create(item)));
      view.update(item);
      if (view.element === place) {
        place = place.nextElementSibling;
        continue;
      }
      const focused = view.element.contains(document.activeElement) ? document.activeElement : null;
      this.#parent.insertBefore(view.element, place);
      focused?.focus({ preventScroll: true }); // an element that moves loses it
    }
  }
}
