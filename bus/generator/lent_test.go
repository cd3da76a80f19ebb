package generator_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
)

// lender is how a generator named near, which is not there, answers those that ask it for IDs.
type lender struct {
	flags string // more fields of its heartbeat; "": it sends none
	reply string // "": it does not answer
	code  string // of an error
	order string
	first func() // is done before it answers
}

// asks lets a generator hear of the lender, and returns what the lender is asked for.
func (r *running) asks(t *testing.T, nc *nats.Conn, l lender) (asked chan string) {
	t.Helper()
	asked = make(chan string, 1000)
	lend := func(msg *nats.Msg) {
		asked <- string(msg.Data)
		if l.first != nil {
			l.first()
		}
		answer := &nats.Msg{Subject: msg.Reply, Data: []byte(l.reply), Header: nats.Header{}}
		if l.order != "" {
			answer.Header.Set(wire.HeaderOrder, l.order)
		}
		if l.code != "" {
			answer.Header.Set("Nats-Service-Error-Code", l.code)
			answer.Header.Set("Nats-Service-Error", "dry")
			answer.Header.Set(wire.HeaderRefills, "true")
		}
		if l.reply != "" {
			_ = nc.PublishMsg(answer)
		}
	}
	if _, err := nc.Subscribe(wire.SubjectTake+".run-of-near", lend); err != nil {
		t.Fatal(err)
	}
	if l.flags != "" {
		r.report(t, nc, "near", l.flags)
	}
	return asked
}

// IDs of another generator are handed out only if they are what was asked for, and nothing forbids them: an operator
// may have changed the tag
// while they were on their way, and a strict tag may have been seen above them. Else the ordinary error comes in time.
func TestLentIDs(t *testing.T) {
	t.Parallel()
	const trend, strict = `"step":10`, `"step":0,"order":"strict"`
	for what, c := range map[string]struct {
		tag    string
		change string // of the tag's record meanwhile
		lender lender
		n      int64
		taken  bool
	}{
		"fitting":        {"order", "", lender{reply: "51-100"}, 50, true},
		"no answer":      {"order", "", lender{}, 5, false},
		"an error":       {"order", "", lender{reply: "dry", code: "503"}, 5, false},
		"another number": {"order", "", lender{reply: "1-9"}, 5, false},
		"nonsense":       {"order", "", lender{reply: "hello"}, 5, false},

		"below a new max_id": {"order", `"max_id":"5000","floor":"5000",` + trend, lender{reply: "51-100"},
			50, false},
		"above the limit": {"order", `"max_id":"50","limit":"99","rules_version":"5",` + trend,
			lender{reply: "51-100"}, 50, false},
		"up to the limit": {"order", `"max_id":"50","limit":"100","rules_version":"5",` + trend,
			lender{reply: "51-100"}, 50, true},
		"of a paused tag": {"order", `"max_id":"50","paused":true,"rules_version":"5",` + trend,
			lender{reply: "51-100"}, 50, false},
		"strict, below what was seen": {"invoice", "", lender{reply: "20-69", order: "strict"}, 50, false},
		"strict, above what was seen": {"invoice", "", lender{reply: "21-70", order: "strict"}, 50, true},
		"strict, above the limit": {"invoice", `"max_id":"50","limit":"99","rules_version":"5",` + strict,
			lender{reply: "51-100", order: "strict"}, 50, false},
		"strict, up to the limit": {"invoice", `"max_id":"50","limit":"100","rules_version":"5",` + strict,
			lender{reply: "51-100", order: "strict"}, 50, true},
		"strict, above a limit of before": {"invoice", `"max_id":"50","limit":"99","rules_version":"0",` + strict,
			lender{reply: "51-100", order: "strict"}, 50, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			nc := natskit.Connect(t, s)
			store := memory(t, "order")
			withInvoice(t, store)
			index := allocator.NewIndex()
			dry, away := startIn(t, s, "dry", "own", store, func(cfg *generator.Config) { cfg.MaxWait, cfg.Index = time.Second, index })
			dry.takeAll(t, c.tag, 20)
			away.away.Store(true)
			c.lender.flags = `,"segment":true,"installation":"own"`
			if c.change != "" {
				c.lender.first = func() {
					if reply, code := ask(t, nc, wire.SubjectRecord,
						fmt.Sprintf(`{"record":{"tag":%q,%s}}`, c.tag, c.change)); code != "" {
						t.Errorf("the change of the tag: %s", reply)
					}
				}
			}
			asked := dry.asks(t, nc, c.lender)
			testkit.Eventually(t, "it is asked", func() bool { // on a busy machine a request may be over before
				before := len(asked)
				ranges, err := dry.Take(t.Context(), c.tag, c.n)
				if n := len(asked) - before; err == nil && !c.taken || n > 4 {
					t.Fatalf("%v, %v; it was asked %d times for one request", ranges, err, n)
				}
				if err == nil && index.End(c.tag) <= ranges[0].Last {
					t.Errorf("%v was borrowed, and is forgotten: all below %d is in use", ranges, index.End(c.tag))
				}
				return len(asked) > before && (err == nil) == c.taken
			})
		})
	}
}

// Requests for a strict tag are passed on to the generator that is faster, if it can be asked, and its answer fits.
// Otherwise the generator
// goes on itself.
func TestPassOn(t *testing.T) {
	t.Parallel()
	const serves = `,"segment":true`
	for name, c := range map[string]struct {
		lender
		passed bool
	}{
		"serves":      {lender{flags: serves, reply: "101-103"}, true},
		"is unknown":  {lender{reply: "101-103"}, false},
		"is gone":     {lender{flags: serves + `,"gone":true`, reply: "101-103"}, false},
		"is stopping": {lender{flags: `,"segment":false`, reply: "101-103"}, false},
		"is frozen":   {lender{flags: serves}, false},
		"refuses": {lender{flags: serves, reply: `{"code":503,"reason":"draining","message":"stopping"}`,
			code: "503"}, false},
		"serves fewer": {lender{flags: serves, reply: "101-102"}, false},
		"serves two":   {lender{flags: serves, reply: "101\n103-104"}, false},
		"talks":        {lender{flags: serves, reply: "hello"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			nc := natskit.Connect(t, s)
			store := memory(t)
			withInvoice(t, store)
			far := start(t, s, "far", contested(store, "run-of-near", 6), func(cfg *generator.Config) { cfg.MaxWait = testkit.Patience })
			asked := far.asks(t, nc, c.lender)
			msg, err := nc.Request("leaf.segment.invoice", []byte("3"), testkit.Patience)
			want := map[bool]string{true: "101-103", false: "1-3"}[c.passed]
			if err != nil || string(msg.Data) != want || msg.Header.Get(wire.HeaderOrder) != idspace.OrderStrict {
				t.Fatalf("answered with %+v, %v; want %s", msg, err, want)
			}
			heard := strings.HasPrefix(c.flags, serves) && !strings.Contains(c.flags, "gone")
			if (len(asked) > 0) != heard {
				t.Fatalf("it was asked %d times", len(asked))
			}
			form := regexp.MustCompile(`^{"tag":"invoice","count":3,"wait_ms":(3[5-9][0-9]|4[0-5][0-9]),"installation":""}$`)
			if heard && !form.MatchString(<-asked) {
				t.Error("it was asked for something else")
			}
			if name == "is frozen" && len(asked) > 0 {
				t.Error("it was asked again, and had just not answered")
			}
		})
	}
}

// A generator lends IDs to those of its installation alone: another one has other IDs of the same tag.
func TestLendsToItsInstallation(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	full, _ := startIn(t, s, "full", "own", memory(t, "order"), nil)
	full.takeAll(t, "order", 1)
	nc := natskit.Connect(t, s)
	for installation, want := range map[string]string{"own": "", "other": "503", "": "503"} {
		for _, wait := range []int{0, 500} {
			body := fmt.Sprintf(`{"installation":%q,"tag":"order","count":1,"wait_ms":%d}`, installation, wait)
			if reply, code := ask(t, nc, wire.SubjectTake+"."+full.RunID(), body); code != want {
				t.Errorf("%s is answered with %s %s", body, code, reply)
			}
		}
	}
}

// A peer that is asked without a wait gives what it has in memory, or says at once whether it can refill. It claims
// nothing, and it asks no one.
func TestLendsFromMemory(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := memory(t, "order", "other")
	withInvoice(t, store)
	one, records := startIn(t, s, "one", "own", store, nil)
	one.takeAll(t, "order", 4)
	one.takeAll(t, "invoice", 4)
	testkit.Eventually(t, "the next segment is there", func() bool { return one.Left("order") == 16 })
	nc := natskit.Connect(t, s)
	lend := func(tag string, n int) (reply, refills string) {
		body := fmt.Sprintf(`{"installation":"own","tag":%q,"count":%d}`, tag, n)
		msg, err := nc.Request(wire.SubjectTake+"."+one.RunID(), []byte(body), testkit.Patience)
		if err != nil {
			t.Fatal(err)
		}
		if err := bus.ReplyError(msg); err != nil {
			return "", msg.Header.Get(wire.HeaderRefills)
		}
		return string(msg.Data), ""
	}
	end := store.Snapshot()["invoice"].MaxID
	for _, c := range []struct {
		tag, reply, refills string
		n                   int
	}{
		{"order", "5-15", "", 11}, {"order", "", "true", 50}, {"invoice", "", "true", 1}, {"other", "", "true", 1},
		{"order", "", "", 0}, {"order", "", "", -1},
	} {
		if reply, refills := lend(c.tag, c.n); reply != c.reply || refills != c.refills && c.n > 0 {
			t.Errorf("%d of %s: %q, refills %q; want %+v", c.n, c.tag, reply, refills, c)
		}
	}
	if reply, _ := lend("", 3); reply == "" && one.State().Snowflake {
		t.Error("it lends no snowflakes")
	}
	if is := store.Snapshot(); is["invoice"].MaxID != end || is["other"].MaxID != 1 {
		t.Errorf("it has claimed IDs: %+v", is)
	}
	records.away.Store(true)
	if _, err := one.Take(t.Context(), "other", 1); err == nil {
		t.Fatal("it came from a store that is away")
	}
	if reply, refills := lend("order", 50); reply != "" || refills != "" {
		t.Errorf("%q, refills %q, and the store is away", reply, refills)
	}
}

// A request without a tag gets no snowflakes of another generator instead, also while requests for segments wait after
// a pause.
func TestNoSnowflakesWithoutATag(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := memory(t)
	with, _ := startIn(t, s, "with", "own", store, nil)
	paused, _ := startIn(t, s, "paused", "own", store, nil)
	testkit.Eventually(t, "one has a worker, and they hear each other", func() bool {
		return with.State().Snowflake && paused.Hears("with") && with.Hears("paused")
	})
	paused.HoldSegments()
	if ranges, err := paused.Take(t.Context(), "", 1); !errors.Is(err, bus.BadTag) {
		t.Errorf("%v, %v", ranges, err)
	}
}
