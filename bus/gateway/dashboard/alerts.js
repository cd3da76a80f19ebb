import { CauseView, PastView, headline } from "./cause.js";
import { announce, byID, Keyed, setNotice, setText } from "./dom.js";
import { counted } from "./number.js";

/** Alerts is the list of what is wrong, a box for each cause, and below it what is over. */
export class Alerts {
  #causes = new Keyed(byID("alerts"), keyOf, () => new CauseView());
  #past = new Keyed(byID("past"), (alert) => alert.id, () => new PastView());
  #announced; // keys of causes, undefined before the first answer

  show({ causes, lasting, ended, past, problem }) {
    this.#causes.show(causes);
    this.#past.show(past);
    setNotice(byID("alerts-note"), causes.length || problem ? "" : ended ? "No open alerts" : "No alerts in the last week");
    byID("past-part").hidden = ended === 0;
    setText(byID("past-note"), counted(ended, "alert that ended", "alerts that ended") + (past.length < ended ? `, the latest ${past.length}` : ""));
    this.#announce(causes, lasting);
  }

  /** A new cause is announced once. What was there when the page came is only counted. */
  #announce(causes, lasting) {
    const before = this.#announced;
    this.#announced = new Set(causes.map(keyOf));
    const fresh = before ? causes.filter((cause) => !cause.gone && !before.has(keyOf(cause))) : [];
    if (fresh.length > 0) announce(fresh.map((cause) => `Alert: ${headline(cause).join(": ")}`).join(". "));
    else if (!before && lasting > 0) announce(counted(lasting, "open alert"));
  }
}

const keyOf = ({ kind, gone }) => `${kind}${gone ? " gone" : ""}`;
