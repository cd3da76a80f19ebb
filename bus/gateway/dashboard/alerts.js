import { CauseView, headline } from "./cause.js";
import { announce, byID, Keyed, setNotice } from "./dom.js";
import { counted } from "./number.js";

/** Alerts is the list of what is wrong, a box for each cause. */
export class Alerts {
  #causes = new Keyed(byID("alerts"), ({ kind }) => kind, () => new CauseView());
  #announced; // kinds of causes, undefined before the first answer

  show({ causes, problem }) {
    this.#causes.show(causes);
    setNotice(byID("alerts-note"), causes.length || problem ? "" : "No open alerts");
    this.#announce(causes);
  }

  /** A new cause is announced once. What was there when the page came is only counted. */
  #announce(causes) {
    const before = this.#announced;
    this.#announced = new Set(causes.map(({ kind }) => kind));
    const fresh = before ? causes.filter(({ kind }) => !before.has(kind)) : [];
    if (fresh.length > 0) announce(fresh.map((cause) => `Alert: ${headline(cause)}: ${cause.findings[0].message}`).join(". "));
    else if (!before && causes.length > 0) announce(counted(causes.length, "open alert"));
  }
}
