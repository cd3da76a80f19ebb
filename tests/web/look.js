// What tests ask the page: a test evaluates this in it once. It is gone when the page is loaded again.
window.look = (() => {
  const all = (path, within = document) => [...within.querySelectorAll(path)];
  const one = (path) => document.querySelector(path);
  const row = (tag) => all("#tags [data-tag]").find(({ dataset }) => dataset.tag === tag);
  const width = (element) => element.getBoundingClientRect().width;
  return {
    all, one, row,

    /** says reports whether the text of an element contains a text. */
    says: (path, text) => one(path)?.innerText.includes(text),

    /** number is the number that an element shows. */
    number: (path) => Number(one(path).textContent.replaceAll(",", "")),

    /** tags are the names of the rows, in their order. */
    tags: () => all("#tags [data-tag]").map(({ dataset }) => dataset.tag).join(),

    /** inOrder reports whether sections stand one below the other. */
    inOrder(...paths) {
      const tops = paths.map((path) => one(path).getBoundingClientRect().top);
      return tops.every((top, i) => i === 0 || top > tops[i - 1]);
    },

    /** wide is what makes the page wider than its window. A phone widens the window to what does not fit. */
    wide(want) {
      const { scrollWidth, clientWidth } = document.documentElement;
      if (scrollWidth <= clientWidth && Math.round(visualViewport.width) === want) return [];
      const beyond = all("body *").filter((e) => e.getBoundingClientRect().right > clientWidth);
      return [`${scrollWidth} > ${clientWidth}`, ...beyond.map((e) => e.outerHTML.slice(0, 200))];
    },

    /** cut is the text that has less room in a segment than it needs. */
    cut: () => all("#tags .segment").flatMap((segment) => all(".label, .range > :not(.unseen)", segment)
      .filter((e) => width(e) > width(segment)).map((e) => e.textContent)),

    /** unseen is what has the keyboard if no outline or shadow shows that, nor one of what stands for it. */
    unseen() {
      const at = document.activeElement;
      const styles = [at, ...(at.labels?.[0]?.querySelectorAll("*") ?? [])].map((e) => getComputedStyle(e));
      const drawn = (s) => (s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0) || s.boxShadow !== "none";
      return styles.some(drawn) || at === document.body ? "" : at.outerHTML;
    },

    /** nameless are the elements of which a screen reader can say nothing. */
    nameless: () => all("input, button, a, table")
      .filter((e) => !(e.labels?.length || e.innerText || e.ariaLabel || e.hasAttribute("aria-labelledby")))
      .map((e) => e.outerHTML),

    /** keyboard is where the keyboard is: the element, its value and the position in it. */
    keyboard: () => (({ id, value, selectionStart }) => [id, value, selectionStart].join(" "))(document.activeElement),

    /** held is what generators have of a tag, as the page shows it. */
    held: (tag) => JSON.stringify(all("[data-node][data-left]", row(tag)).map((buffer) => [
      buffer.dataset.node,
      buffer.dataset.left,
      all(".segment", buffer).map(({ dataset: { first, last, next } }) => [first, last, next]),
    ])),

    /** position is the sum of the positions in the segments of a tag. */
    position: (tag) => all(".segment", row(tag)).reduce((sum, { dataset }) => sum + Number(dataset.next), 0),

    /** inject does what a text could that became an element, and says whether it runs. */
    inject() {
      const script = document.createElement("script");
      script.textContent = "window.injected = true";
      document.head.append(script);
      const button = document.createElement("button");
      button.setAttribute("onclick", "window.injected = true");
      button.click();
      return Boolean(window.injected);
    },
  };
})();
