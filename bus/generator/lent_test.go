package generator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
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
	for subject, f := range map[string]nats.MsgHandler{
		wire.SubjectHave: func(msg *nats.Msg) { _ = msg.Respond([]byte(`{"run":"run-of-near","left":1000}`)) },
		wire.SubjectTake + ".run-of-near": func(msg *nats.Msg) {
			asked <- string(msg.Data)
			if l.first != nil {
				l.first()
			}
			answer := &nats.Msg{Subject: msg.Reply, Data: []byte(l.reply), Header: nats.Header{}}
			if l.order != "" {
				answer.Header.Set(bus.HeaderOrder, l.order)
			}
			if l.code != "" {
				answer.Header.Set("Nats-Service-Error-Code", l.code)
				answer.Header.Set("Nats-Service-Error", "dry")
			}
			if l.reply != "" {
				_ = nc.PublishMsg(answer)
			}
		},
	} {
		if _, err := nc.Subscribe(subject, f); err != nil {
			t.Fatal(err)
		}
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
			dry, away := startIn(t, s, "dry", "own", store, func(cfg *generator.Config) { cfg.MaxWait = time.Second })
			dry.takeAll(t, c.tag, 20)
			away.away.Store(true)
			c.lender.flags = `,"segment":true`
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
				if n := len(asked) - before; err == nil && !c.taken || n > 12 {
					t.Fatalf("%v, %v; it was asked %d times for one request", ranges, err, n)
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
		"serves":                     {lender{flags: serves, reply: "101-103"}, true},
		"is unknown":                 {lender{reply: "101-103"}, false},
		"is gone":                    {lender{flags: serves + `,"gone":true`, reply: "101-103"}, false},
		"is stopping":                {lender{flags: `,"segment":false`, reply: "101-103"}, false},
		"is of another installation": {lender{flags: serves + `,"installation":"another"`, reply: "101-103"}, false},
		"is frozen":                  {lender{flags: serves}, false},
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
			if err != nil || string(msg.Data) != want || msg.Header.Get(bus.HeaderOrder) != bus.OrderStrict {
				t.Fatalf("answered with %+v, %v; want %s", msg, err, want)
			}
			heard := strings.HasPrefix(c.flags, serves) && !strings.Contains(c.flags, "gone") && !strings.Contains(c.flags, "another")
			if (len(asked) > 0) != heard {
				t.Fatalf("it was asked %d times", len(asked))
			}
			form := regexp.MustCompile(`^{"tag":"invoice","count":3,"wait_ms":(4[0-9][0-9]|500)}$`)
			if heard && !form.MatchString(<-asked) {
				t.Error("it was asked for something else")
			}
		})
	}
}

// A generator of another installation has other IDs of the same tag, and is not asked.
func TestAnotherInstallationIsNotAsked(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	full, _ := startIn(t, s, "full", "own", memory(t, "order"), nil)
	full.takeAll(t, "order", 1)
	nc := natskit.Connect(t, s)
	for installation, offers := range map[string]bool{"own": true, "other": false, "": false} {
		reply, _ := ask(t, nc, wire.SubjectHave,
			fmt.Sprintf(`{"run":"me","installation":%q,"tag":"order","count":1}`, installation))
		var offer struct{ Left int64 }
		if err := json.Unmarshal([]byte(reply), &offer); err != nil || (offer.Left > 0) != offers {
			t.Errorf("installation %q is offered %s, %v", installation, reply, err)
		}
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
