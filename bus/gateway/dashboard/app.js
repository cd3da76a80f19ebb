// The operators' page: it asks the generator that serves it for the state of
// all generators, and hands the answers to the sections.

import { Alerts } from "./alerts.js";
import { byID, setText } from "./dom.js";
import { Events } from "./events.js";
import { Generators } from "./generators.js";
import { Poll } from "./poll.js";
import { counters, Rates } from "./rate.js";
import { Summary } from "./summary.js";
import { Tags } from "./tags.js";
import { setNow, zone } from "./time.js";

const rates = new Rates(5);
const summary = new Summary(rates);
const alerts = new Alerts();
const generators = new Generators(rates);
new Tags();
new Events();

new Poll({
  path: () => "dashboard/overview",
  onAnswer(overview) {
    setNow(overview.unix_ms);
    setText(byID("zone"), zone());
    rates.add(overview.nodes.flatMap(counters));
    summary.overview(overview);
    generators.overview(overview);
    alerts.show(overview);
  },
  onFailure: (error) => summary.failed(error),
}).start();

byID("origin").textContent = location.origin;
