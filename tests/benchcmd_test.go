package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// benchReport is what leaf bench --json writes.
type benchReport struct {
	Tag, With         string
	Callers           int
	Count             int64
	Rate              float64
	Seconds           float64
	Requests          int64
	RequestsPerSecond float64 `json:"requests_per_second"`
	IDs               int64
	IDsPerSecond      float64            `json:"ids_per_second"`
	IDsBefore         int64              `json:"ids_before"`
	Latency           map[string]float64 `json:"latency_us"`
	Errors            []benchError
	Unsent            int64
	Retries           int64
	Generators        []struct {
		Node     string
		Requests int64
	}
	Runs     int
	Repeated int64
	Repeats  []struct{ First, Last string }
	Stopped  string
	Warnings []string
}

type benchError struct {
	Reason string
	Count  int64
	First  string
}

// The load is what was asked for, whichever way callers get their IDs, and none comes twice.
func TestBench(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order:1000", "--node", "one")
	c := client(t, g.url)
	for _, with := range []string{"take", "next", "pool"} {
		for _, tag := range []string{"order", ""} {
			count, rate := int64(1), 0.0
			args := []string{"bench", "--with", with, "--requests", "300", "--callers", "20", "--duration", "1h", "--json", "-s", g.url}
			if tag != "" {
				args = append(args, tag)
			}
			if with == "take" {
				count, rate = 70, 5000
				args = append(args, "-n", "70", "--rate", "5000")
			}
			before := states(t, c, 1)[0].Counts.Requests
			r := leaf(t, args...)
			if r.status != 0 {
				t.Fatalf("leaf %v: exit status %d: %s", args, r.status, r.stderr)
			}
			answered := states(t, c, 1)[0].Counts.Requests - before
			b := parse[benchReport](t, []byte(r.stdout))
			if b.Tag != tag || b.With != with || b.Callers != 20 || b.Count != count || b.Rate != rate {
				t.Errorf("leaf %v: the load was %+v", args, b)
			}
			if b.Requests != 300 || b.IDs != 300*count || len(b.Errors) != 0 || b.Repeated != 0 || b.Runs < 1 || b.Stopped != "" || b.Unsent != 0 {
				t.Errorf("leaf %v found %+v", args, b)
			}
			if b.Seconds <= 0 || b.RequestsPerSecond <= 0 || b.IDsPerSecond < b.RequestsPerSecond {
				t.Errorf("leaf %v: rates %+v", args, b)
			}
			least := 0.0
			for _, q := range []string{"p50", "p90", "p99", "p99.9", "p99.99", "max"} {
				if b.Latency[q] <= 0 || b.Latency[q] < least {
					t.Errorf("leaf %v: latencies %v", args, b.Latency)
				}
				least = b.Latency[q]
			}
			// The first request is before the load. Only with take each is one of the generator's.
			if len(b.Generators) != 1 || b.Generators[0].Node != "one" || with == "take" && (b.Generators[0].Requests != 300 || answered != 301) || with != "take" && answered > 300 {
				t.Errorf("leaf %v: the generators are %+v, and answered %d requests", args, b.Generators, answered)
			}
			for _, w := range b.Warnings {
				if !strings.Contains(r.stderr, "warning: "+w+"\n") {
					t.Errorf("leaf %v: %q is not on stderr: %s", args, w, r.stderr)
				}
			}
		}
	}

	leafOK(t, "tag", "add", "coupon", "--quota", "50/s", "-s", g.url)
	if r := leaf(t, "bench", "coupon", "--requests", "100", "--callers", "20", "-s", g.url); r.status != 0 || !strings.Contains(r.stderr, "Has the tag a quota?") {
		t.Errorf("of a tag with a quota it says %q", r.stderr)
	}

	text := leaf(t, "bench", "order", "--callers", "1", "--requests", "5", "-s", g.url)
	text.want(t, 0)
	for _, want := range []string{"requests", "5 in ", "IDs", "none twice", "p50", "p99.99", "max", "answered by", "one 5\n", "not measured", "(IDs: 1)"} {
		if !strings.Contains(text.stdout, want) {
			t.Errorf("it does not say %q:\n%s", want, text.stdout)
		}
	}

	for _, c := range []struct {
		args   []string
		status int
		stderr string
	}{
		{[]string{"nobody", "--duration", "1h"}, 1, "unknown_tag"},
		{[]string{"nobody", "--duration", "1h", "--with", "next"}, 1, "unknown_tag"},
		{[]string{"nobody", "--duration", "1h", "--with", "pool"}, 1, "unknown_tag"},
		{[]string{"order", "-n", "1000000000", "--duration", "1h"}, 1, "batch_too_large"},
		{[]string{"a b"}, 1, "bad_tag"},
		{[]string{""}, 2, "TAG"},
		{[]string{"order", "coupon"}, 2, "arg"},
		{[]string{"--with", "luck"}, 2, "--with"},
		{[]string{"--callers", "0"}, 2, "--callers"},
		{[]string{"--callers", "5001"}, 2, "--callers"},
		{[]string{"-n", "0"}, 2, "--count"},
		{[]string{"-n", "2", "--with", "next"}, 2, "--count"},
		{[]string{"-n", "2", "--with", "pool"}, 2, "--count"},
		{[]string{"--duration", "0s"}, 2, "--duration"},
		{[]string{"--requests", "-1"}, 2, "--requests"},
		{[]string{"--rate", "-1"}, 2, "--rate"},
		{[]string{"--rate", "NaN"}, 2, "--rate"},
		{[]string{"--rate", "+Inf"}, 2, "--rate"},
		{[]string{"--rate", "1e10"}, 2, "--rate"},
	} {
		r := leaf(t, append(append([]string{"bench"}, c.args...), "-s", g.url)...)
		r.want(t, c.status, c.stderr)
		if r.stdout != "" {
			t.Errorf("leaf bench %v writes %q to stdout", c.args, r.stdout)
		}
	}
	if out := leafOK(t, "__complete", "bench", "--with", ""); !strings.Contains(out, "take\t") || !strings.Contains(out, "next\t") || !strings.Contains(out, "pool\t") {
		t.Errorf("--with completes to %q", out)
	}
}

func TestBenchOfSeveralGenerators(t *testing.T) {
	t.Parallel()
	g := embed(t, "--node", "one")
	serve(t, t.TempDir(), "-s", g.url, "--node", "two")
	states(t, client(t, g.url), 2)
	b := parse[benchReport](t, []byte(leafOK(t, "bench", "--requests", "400", "--duration", "1h", "--json", "-s", g.url)))
	var sum int64
	for _, s := range b.Generators {
		sum += s.Requests
	}
	if len(b.Generators) != 2 || sum != 400 || b.Repeated != 0 {
		t.Errorf("the report is %+v", b)
	}
}

func TestBenchWithoutAGenerator(t *testing.T) {
	t.Parallel()
	s := newNATS(t)
	for _, with := range []string{"take", "next", "pool"} {
		leaf(t, "bench", "order", "--with", with, "--duration", "1h", "--timeout", "300ms", "-s", s.ClientURL()).want(t, 3, "no generator")
	}
}

func TestBenchThatIsNotPermitted(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(conf, []byte(`authorization { users: [{ user: u, password: p, permissions: { publish: "nothing" } }] }`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newNATSFrom(t, conf)
	leaf(t, "bench", "--duration", "1h", "--timeout", "1h", "-s", s.ClientURL(), "--user", "u", "--password", "p").want(t, 1, "may not publish to leaf.snowflake")
}

// Interrupted, it reports what it has.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order")
	c := client(t, g.url)
	for _, with := range []string{"take", "next", "pool"} {
		before := states(t, c, 1)[0].Counts.Requests
		p := start(t, command(t, t.TempDir(), nil, []string{"bench", "order", "--with", with, "--duration", "1h", "--json", "-s", g.url}))
		testkit.Eventually(t, "requests", func() bool { return states(t, c, 1)[0].Counts.Requests >= before+3 })
		p.signal(os.Interrupt)
		result{p.wait(patience), p.stdout.String(), p.stderr.String()}.want(t, 0, "warning: it ended early: interrupted")
		b := parse[benchReport](t, []byte(p.stdout.String()))
		if b.Stopped != "interrupted" || b.Requests == 0 || b.Repeated != 0 || len(b.Errors) != 0 || len(b.Generators) != 1 {
			t.Errorf("--with %s: the report is %+v", with, b)
		}
	}

	// Before the first answer there is nothing to report.
	nc := connect(t, newNATS(t).ClientURL())
	requests, err := nc.SubscribeSync("leaf.segment.order")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, command(t, t.TempDir(), nil, []string{"bench", "order", "--timeout", "1h", "-s", nc.ConnectedUrl()}))
	if _, err := requests.NextMsg(patience); err != nil {
		t.Fatal(err)
	}
	p.signal(os.Interrupt)
	result{p.wait(patience), p.stdout.String(), p.stderr.String()}.want(t, 1, "leaf: interrupted")
}

// responder is no generator, but answers requests for IDs as the test says. Answers are made one at a time.
func responder(t *testing.T, subject string, answer func(n int64) (ids string, reason bus.Reason)) (url string) {
	t.Helper()
	s := newNATS(t)
	nc := connect(t, s.ClientURL())
	_, err := nc.Subscribe(subject, func(m *nats.Msg) {
		n, err := strconv.ParseInt(string(m.Data), 10, 64)
		if err != nil {
			t.Errorf("the request is %q", m.Data)
		}
		ids, reason := answer(n)
		reply := nats.NewMsg(m.Reply)
		reply.Data = []byte(ids)
		if reason != "" {
			reply.Header.Set("Nats-Service-Error-Code", "507")
			reply.Header.Set("Nats-Service-Error", "no more")
			reply.Data = fmt.Appendf(nil, `{"code":507,"reason":%q,"message":"no more"}`, reason)
		}
		if err := nc.PublishMsg(reply); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return s.ClientURL()
}

// IDs that come twice are named, whichever way they are got, and are a failure.
func TestBenchFindsRepeatedIDs(t *testing.T) {
	t.Parallel()
	for subject, tag := range map[string][]string{"leaf.segment.x": {"x"}, "leaf.snowflake": nil} {
		for _, with := range []string{"take", "next", "pool"} {
			var mu sync.Mutex
			var last, lies, given int64
			repeated := make(map[string]bool)
			url := responder(t, subject, func(n int64) (string, bus.Reason) {
				mu.Lock()
				defer mu.Unlock()
				r := bus.Range{First: last + 1, Last: last + n}
				if last >= 150 { // the last one again
					r = bus.Range{First: last, Last: last + n - 1}
					lies++
					repeated[strconv.FormatInt(last, 10)] = true
				}
				last = r.Last
				given += n
				return r.String(), ""
			})
			first := int64(1) // IDs of the request that is not measured
			args := append([]string{"bench", "--with", with, "--requests", "2000", "--duration", "1h", "--callers", "3", "--json", "-s", url}, tag...)
			if with == "take" {
				args, first = append(args, "-n", "2"), 2
			}
			r := leaf(t, args...)
			b := parse[benchReport](t, []byte(r.stdout))
			mu.Lock()
			// No caller got some of the IDs that a pool fetched, or that came after a request was sent again. Each of these
			// answers hides its own lie and the next one.
			lost := given - first - b.IDs
			if b.Repeated < max(1, lies-2*lost) || b.Repeated > lies || len(b.Repeats) == 0 {
				t.Fatalf("leaf %v: %d repeated, %v, want %d; %d IDs were lost", args, b.Repeated, b.Repeats, lies, lost)
			}
			for _, again := range b.Repeats {
				if again.First != again.Last || !repeated[again.First] {
					t.Errorf("leaf %v: %v was given once", args, again)
				}
			}
			mu.Unlock()
			r.want(t, 1, fmt.Sprintf("%d IDs CAME MORE THAN ONCE, among them %s", b.Repeated, b.Repeats[0].First))
			if with == "take" {
				r := leaf(t, slices.DeleteFunc(args, func(arg string) bool { return arg == "--json" })...)
				if r.status != 1 || strings.Contains(r.stdout, "none twice") || !strings.Contains(r.stdout, "SOME MORE THAN ONCE: ") {
					t.Errorf("leaf %v: exit status %d:\n%s", args, r.status, r.stdout)
				}
			}
		}
	}
}

// Errors are counted, and do not end the load.
func TestBenchCountsErrors(t *testing.T) {
	t.Parallel()
	asked := 0
	url := responder(t, "leaf.segment.x", func(n int64) (string, bus.Reason) {
		asked++
		switch {
		case asked <= 6: // the first is before the load
			return fmt.Sprintf("%d-%d", 10*asked, 10*asked+1), ""
		case asked <= 9:
			return fmt.Sprint(10 * asked), "" // one for two
		case asked <= 13:
			return "-7", ""
		}
		return "", bus.Exhausted
	})
	b := parse[benchReport](t, []byte(leafOK(t, "bench", "x", "-n", "2", "--callers", "1", "--requests", "20", "--duration", "1h", "--json", "-s", url)))
	if b.Requests != 5 || b.IDs != 10 || b.Runs != 6 || b.Repeated != 0 || len(b.Errors) != 2 {
		t.Fatalf("the report is %+v", b)
	}
	if e := b.Errors; e[0].Reason != "exhausted" || e[0].Count != 8 || !strings.Contains(e[0].First, "no more") ||
		e[1].Reason != "other" || e[1].Count != 7 || !strings.Contains(e[1].First, "the reply has 1 IDs, the request was for 2") {
		t.Errorf("errors %+v", b.Errors)
	}
}
