//go:build drills

package tests

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/proxy"
)

const (
	// runsEnv says how often each fault is repeated; the table in docs/clients.md is of 20 runs.
	runsEnv     = "LEAF_TEST_RUNS"
	defaultRuns = 2

	clientLearns = 2 * time.Second // calls before the fault
	clientAfter  = 2 * time.Second // and after its end
	// clientStill is how late a sleep of 1 ms may be. A run on a machine that stood still for longer says nothing about a client.
	clientStill = 30 * time.Millisecond
)

// clientKinds are the callers of the drill. Those of one kind have a process of their own.
var clientKinds = []struct {
	name string
	cfg  clientConfig
}{
	{"Next", clientConfig{Kind: "next", Tag: "order"}},
	{"Take(1)", clientConfig{Kind: "take", Tag: "order"}},
	{"Pool.Next", clientConfig{Kind: "pool", Tag: "order"}},
	{"Next, strict tag", clientConfig{Kind: "next", Tag: "invoice", Strict: true}},
}

// clientFault is what happens to one of three generators.
type clientFault struct {
	name       string
	lasts      time.Duration
	aim        time.Duration // of the longest call
	begin, end func(d *clientDrill)
}

var clientFaults = []clientFault{
	{
		name: "killed", lasts: 2 * time.Second, aim: 60 * time.Millisecond,
		begin: func(d *clientDrill) { d.generators[0].kill() },
		end:   func(*clientDrill) {}, // a supervisor starts it later
	},
	{
		name: "frozen", lasts: 6 * time.Second, aim: 150 * time.Millisecond,
		begin: func(d *clientDrill) { d.generators[0].freeze() },
		end:   func(d *clientDrill) { d.generators[0].signal(syscall.SIGCONT) },
	},
	{
		name: "silent", lasts: 6 * time.Second, aim: 150 * time.Millisecond,
		begin: func(d *clientDrill) { d.way.Hang(true) },
		end:   func(d *clientDrill) { d.way.Hang(false) },
	},
}

// clientDrill is three generators on one NATS. The way of the first one to it goes through a proxy.
type clientDrill struct {
	t          *testing.T
	url        string
	way        *proxy.Proxy
	dirs       []string
	generators []*generator
	taken      map[string]*allocatortest.Checker // by tag
}

// Callers in processes of their own, whose calls have a deadline of 500 ms, while one of three generators dies.
func TestDrillClient(t *testing.T) {
	runs := defaultRuns
	if s := os.Getenv(runsEnv); s != "" {
		var err error
		runs, err = strconv.Atoi(s)
		must(t, err)
	}
	for _, fault := range clientFaults {
		t.Run(fault.name, func(t *testing.T) {
			d := newClientDrill(t)
			rows := make([]clientRow, len(clientKinds))
			tries := 0
			for ; len(rows[0].longest) < runs && tries < runs+runs/2 && !t.Failed(); tries++ {
				d.run(fault, rows)
			}
			t.Logf("the machine stood still in %d of %d runs", tries-len(rows[0].longest), tries)
			if len(rows[0].longest) == 0 {
				return
			}
			var table strings.Builder
			for i, kind := range clientKinds {
				fmt.Fprintf(&table, "| %s | %s %s\n", fault.name, kind.name, rows[i].text(fault.aim))
			}
			t.Logf("\n| fault | call | runs | calls from the fault on | failed | runs with a failed call | p99.9 | "+
				"longest: median, worst run | runs over %v | messages sent per call | hedges | "+
				"longest sleep above 1 ms: median, worst |\n%s", fault.aim, table.String())
			for i, kind := range clientKinds {
				if rows[i].runsFailed > max(runs/20, 1) {
					t.Errorf("%s: calls failed in %d runs", kind.name, rows[i].runsFailed)
				}
				if len(rows[i].errors) > 0 {
					t.Logf("%s: %v", kind.name, reasonsOf(rows[i].errors))
				}
			}
		})
	}
}

func newClientDrill(t *testing.T) *clientDrill {
	t.Helper()
	server := newNATS(t)
	d := &clientDrill{t: t, url: server.ClientURL(), generators: make([]*generator, 3), taken: make(map[string]*allocatortest.Checker)}
	way, err := proxy.Start(strings.TrimPrefix(d.url, "nats://"))
	must(t, err)
	t.Cleanup(way.Close)
	d.way = way
	for range d.generators {
		d.dirs = append(d.dirs, t.TempDir())
	}
	d.complete()
	_, err = client(t, d.url).CreateTag(t.Context(), bus.TagCreate{Tag: "invoice", Order: bus.OrderStrict})
	must(t, err)
	return d
}

// complete starts what does not run, and waits until all generators answer.
func (d *clientDrill) complete() {
	d.t.Helper()
	for i, g := range d.generators {
		if g == nil || g.ended() {
			url := d.url
			if i == 0 {
				url = "nats://" + d.way.Addr()
			}
			d.generators[i] = serve(d.t, d.dirs[i], "-s", url, "--tag", "order:20000", "--node", fmt.Sprint("n", i))
		}
	}
	nc := connect(d.t, d.url)
	defer nc.Close()
	testkit.Eventually(d.t, "all generators to answer", func() bool {
		nodes := make(map[string]bool)
		for _, p := range collect[micro.Ping](d.t, nc, "$SRV.PING.leaf-segment", "", len(d.generators)) {
			nodes[p.Metadata["node"]] = true
		}
		return len(nodes) == len(d.generators)
	})
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// run lets the fault happen once, and adds what each kind of callers met to its row, unless the machine stood still.
func (d *clientDrill) run(fault clientFault, rows []clientRow) {
	d.t.Helper()
	d.complete()
	var clients []*clientProcess
	for _, kind := range clientKinds {
		cfg := kind.cfg
		cfg.URL, cfg.Callers, cfg.Deadline, cfg.Rest = d.url, 8, probeDeadline, 5*time.Millisecond
		clients = append(clients, startClient(d.t, cfg))
	}
	time.Sleep(clientLearns)
	began := time.Now()
	fault.begin(d)
	time.Sleep(fault.lasts)
	fault.end(d)
	time.Sleep(clientAfter)
	var all []clientMet
	still := time.Duration(0)
	for i, c := range clients {
		met, tag := c.stop(), clientKinds[i].cfg.Tag
		all, still = append(all, met), max(still, met.Overslept)
		if d.taken[tag] == nil {
			d.taken[tag] = &allocatortest.Checker{}
		}
		d.taken[tag].Add(met.Ranges...)
	}
	for i, met := range all {
		if still <= clientStill {
			rows[i].add(met, began)
		}
	}
	for tag, taken := range d.taken {
		if _, err := taken.Check(); err != nil {
			d.t.Errorf("%s: %v", tag, err)
		}
	}
}

// clientRow is what the callers of one kind met in all runs, from the fault on.
type clientRow struct {
	took               []time.Duration
	failed, runsFailed int             // calls, and runs with such calls
	overslept, longest []time.Duration // by run
	requests, calls    float64         // of whole runs
	hedges             int64
	errors             map[string]int
}

func (r *clientRow) add(met clientMet, fault time.Time) {
	var longest time.Duration
	failed := 0
	for _, c := range met.Calls {
		if c.At < fault.UnixNano() {
			continue
		}
		r.took = append(r.took, c.Took)
		longest = max(longest, c.Took)
		if c.Failed {
			failed++
		}
	}
	r.failed += failed
	if failed > 0 {
		r.runsFailed++
	}
	r.longest, r.overslept = append(r.longest, longest), append(r.overslept, met.Overslept)
	r.requests, r.calls = r.requests+float64(met.Requests), r.calls+float64(len(met.Calls))
	r.hedges += met.Stats.Hedges
	if r.errors == nil {
		r.errors = make(map[string]int)
	}
	for text, n := range met.Errors {
		r.errors[text[:min(len(text), 100)]] += n
	}
}

// text is the row's line in the table. The aim is about the longest call of a run.
func (r *clientRow) text(aim time.Duration) string {
	missed := 0
	for _, longest := range r.longest {
		if longest > aim { // a call that fails takes longer, too
			missed++
		}
	}
	slices.Sort(r.took)
	return fmt.Sprintf("| %d | %d | %d | %d | %s | %s | %d | %.3f | %d | %s |", len(r.longest), len(r.took), r.failed, r.runsFailed,
		millis(r.took[len(r.took)*999/1000]), medianAndWorst(r.longest), missed, r.requests/r.calls, r.hedges, medianAndWorst(r.overslept))
}

func medianAndWorst(of []time.Duration) string {
	sorted := slices.Sorted(slices.Values(of))
	return millis(sorted[len(sorted)/2]) + ", " + millis(sorted[len(sorted)-1])
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
