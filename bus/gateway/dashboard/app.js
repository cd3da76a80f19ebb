// The operators' page: it asks the generator that serves it for the state of
// all generators, and hands the answers to the sections.

import { Alerts } from "./alerts.js";
import { byID, setNotice, setText } from "./dom.js";
import { Ends } from "./ends.js";
import { Events, shown } from "./events.js";
import { Generators } from "./generators.js";
import { Poll, refusal } from "./poll.js";
import { Rates } from "./rate.js";
import { Summary } from "./summary.js";
import { Tags } from "./tags.js";
import { setNow, zone } from "./time.js";
import { Workers } from "./workers.js";

const rates = new Rates();
const summary = new Summary(rates);
const alerts = new Alerts();
const ends = new Ends();
const tags = new Tags();
const generators = new Generators(rates);
const events = new Events();
new Workers();

new Poll({
  path: () => "dashboard/overview",
  every: () => 1_000,
  onAnswer(overview) {
    setNow(overview.unix_ms);
    setText(byID("zone"), zone());
    rates.add(overview.nodes);
    summary.overview(overview);
    tags.overview(overview);
    ends.show(tags.known(), tags.rates, Math.max(0, ...overview.nodes.map(({ counts }) => counts.failing)));
    generators.overview(overview);
    summary.alerts(overview.causes.length);
    alerts.show(overview);
  },
  onFailure: (error) => summary.failed(error),
}).start();

new Poll({
  path: () => "dashboard/feed",
  every: () => 1_000,
  onAnswer(feed) {
    setNotice(byID("events-problem"), feed.problem);
    events.show(feed.events.map(shown));
  },
  onFailure: (error) => setNotice(byID("events-problem"), refusal(error)),
}).start();

byID("origin").textContent = location.origin;
