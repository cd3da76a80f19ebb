package generator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
)

// count is how many IDs a reply has.
func count(t *testing.T, reply string) (n int) {
	t.Helper()
	ranges, err := bus.ParseReply([]byte(reply))
	if err != nil {
		t.Error(err)
	}
	for _, r := range ranges {
		n += int(r.Len())
	}
	return n
}

// joined makes a generator of a test one of this installation.
func joined(installation string) func(*generator.Config) {
	return func(cfg *generator.Config) {
		cfg.Join = func(context.Context, func(context.Context) error) (generator.Identity, error) {
			return generator.Identity{Installation: installation}, nil
		}
	}
}

// startIn starts a generator of an installation, with a store that can be taken from it alone.
func startIn(t *testing.T, s *embedded.Server, node, installation string, store allocator.Store, change func(*generator.Config)) (*running, *switched) {
	t.Helper()
	own := &switched{Store: store}
	return start(t, s, node, own, func(cfg *generator.Config) {
		joined(installation)(cfg)
		if change != nil {
			change(cfg)
		}
	}), own
}

// takeAll takes so many IDs of a tag from one generator.
func (r *running) takeAll(t *testing.T, tag string, n int64) {
	t.Helper()
	if _, err := r.Take(t.Context(), tag, n); err != nil {
		t.Fatal(err)
	}
}

// pair starts two generators of one installation, of which the one named dry has no IDs of order, and full has some thousand. Then no store
// can be reached.
func pair(t *testing.T, s *embedded.Server) (dry, full *running) {
	t.Helper()
	store := memory(t, "other")
	withInvoice(t, store)
	if _, err := store.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 1, Step: 1000}); err != nil {
		t.Fatal(err)
	}
	dry, dryStore := startIn(t, s, "dry", "own", store, nil)
	full, fullStore := startIn(t, s, "full", "own", store, nil)
	for _, tag := range []string{"other", "invoice"} {
		dry.takeAll(t, tag, 1)
		full.takeAll(t, tag, 1)
	}
	full.takeAll(t, "order", 1)
	testkit.Eventually(t, "the two hear each other", func() bool { return dry.Hears("full") && full.Hears("dry") })
	dryStore.away.Store(true)
	fullStore.away.Store(true)
	return dry, full
}

// One generator has no IDs of a tag, and the store is away. Another one has some thousand. No request is refused, by NATS or by HTTP,
// until that one has none left either. And the dry one stays in the queue group, because it has IDs of another tag.
func TestDryGeneratorAsksAnother(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	dry, full := pair(t, s)
	for _, r := range []*running{dry, full} { // from then on they know that the store is away, and offer what is in memory alone
		if _, err := r.Take(t.Context(), "order", 5000); !errors.Is(err, bus.StoreUnavailable) {
			t.Fatal(err)
		}
	}
	nc := natskit.Connect(t, s)
	var ids allocatortest.Checker
	for n := 0; full.Left("order") >= 14; n++ {
		ranges, err := dry.Take(t.Context(), "order", 7) // as HTTP does
		if err != nil {
			t.Fatalf("%d are left: %v", full.Left("order"), err)
		}
		ids.Add(ranges...)
		body := []string{"7", `{"count":7}`}[n%2]
		msg, err := nc.Request("leaf.segment.order", []byte(body), testkit.Patience)
		if err != nil || bus.ReplyError(msg) != nil || msg.Header != nil {
			t.Fatalf("%d are left: %+v, %v", full.Left("order"), msg, err)
		}
		if n%2 == 0 {
			ranges, err := bus.ParseReply(msg.Data)
			if err != nil {
				t.Fatal(err)
			}
			ids.Add(ranges...)
		}
	}
	if _, err := ids.Check(); err != nil {
		t.Error(err)
	}
	if _, err := dry.Take(t.Context(), "order", full.Left("order")+1); !errors.Is(err, bus.StoreUnavailable) {
		t.Errorf("nobody has so many: %v", err)
	}
	if !dry.Wanted(generator.SegmentKind) {
		t.Error("it leaves the queue group, and has IDs of another tag")
	}
	if n := dry.State().Counts.Borrowed; n < 50 {
		t.Errorf("%d requests were answered by another generator", n)
	}
	if n := full.State().Counts.Borrowed; n != 0 {
		t.Errorf("%d requests were answered by a generator that has none", n)
	}
}

// One generator can claim no IDs of a strict tag, another one can: its answer says that the tag is strict.
func TestStrictTagOfAnother(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := memory(t)
	withInvoice(t, store)
	_, away := startIn(t, s, "cut off", "own", store, func(cfg *generator.Config) { cfg.MaxWait = testkit.Patience })
	away.away.Store(true)
	well, _ := startIn(t, s, "well", "own", store, nil)
	well.takeAll(t, "invoice", 1)
	nc := natskit.Connect(t, s)
	for last := int64(1); last < 40; {
		msg, err := nc.Request("leaf.segment.invoice", nil, testkit.Patience)
		if err != nil || bus.ReplyError(msg) != nil || msg.Header.Get(bus.HeaderOrder) != bus.OrderStrict {
			t.Fatalf("%+v, %v", msg, err)
		}
		ranges, err := bus.ParseReply(msg.Data)
		if err != nil || ranges[0].First <= last {
			t.Fatalf("%v after %d, %v", ranges, last, err)
		}
		last = ranges[0].Last
	}
}

// A generator without a worker answers with the snowflakes of another one, by NATS and by HTTP.
func TestSnowflakesOfAnother(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := memory(t)
	without, _ := startIn(t, s, "without", "own", store, func(cfg *generator.Config) { cfg.Snowflake.Registry = noRegistry{} })
	nc := natskit.Connect(t, s)
	if _, code := ask(t, nc, bus.SubjectSnowflake, ""); code != "503" {
		t.Fatalf("alone it answers with %s", code)
	}
	with, _ := startIn(t, s, "with", "own", store, nil)
	testkit.Eventually(t, "it has a worker", func() bool { return with.State().Snowflake })
	testkit.Eventually(t, "that is heard", func() bool { _, err := without.Snowflakes(t.Context(), 1); return err == nil })
	for range 50 {
		if ranges, err := without.Snowflakes(t.Context(), 10); err != nil {
			t.Fatal(ranges, err)
		}
	}
}

// noRegistry is a registry that is away.
type noRegistry struct{ snowflake.Registry }

func (noRegistry) List(context.Context) ([]snowflake.Entry, error) { return nil, errors.New("away") }

// What can go wrong while another generator is asked ends in the ordinary error, in less than the 2 s that callers wait: it answers nothing,
// it has run dry meanwhile, it hands out something else, it belongs to another installation, it leads to a third.
func TestAskedInVain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		offer, reply string // %s in the offer is the run
		asks         bool   // it is asked for IDs
	}{
		"no offer":             {"", "", false},
		"an offer of nonsense": {"hello", "", false},
		"no answer":            {`{"run":"run-of-near","left":100}`, "", true},
		"an error":             {`{"run":"run-of-near","left":100}`, "error", true},
		"other IDs":            {`{"run":"run-of-near","left":100}`, "1-9", true},
		"nonsense":             {`{"run":"run-of-near","left":100}`, "hello", true},
		"nobody":               {`{"run":"nobody","left":100}`, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			nc := natskit.Connect(t, s)
			asked := make(chan string, 1000)
			respond := func(subject, body string, note bool) {
				_, err := nc.Subscribe(subject, func(msg *nats.Msg) {
					if note {
						asked <- string(msg.Data)
					}
					answer := &nats.Msg{Subject: msg.Reply, Data: []byte(body), Header: nats.Header{}}
					if body == "error" {
						answer.Header.Set("Nats-Service-Error-Code", "503")
						answer.Header.Set("Nats-Service-Error", "dry")
					}
					if body != "" {
						_ = nc.PublishMsg(answer)
					}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			respond(wire.SubjectHave, c.offer, false)
			respond(wire.SubjectTake+".run-of-near", c.reply, true)
			dry, away := startIn(t, s, "dry", "own", memory(t, "order"), func(cfg *generator.Config) { cfg.MaxWait = 300 * time.Millisecond })
			away.away.Store(true)
			dry.report(t, nc, "near", `,"segment":true`)
			done := make(chan error, 2)
			go func() { _, err := dry.Take(t.Context(), "order", 5); done <- err }()
			go func() {
				msg, err := nc.Request("leaf.segment.order", []byte("5"), testkit.Patience)
				if err == nil {
					err = bus.ReplyError(msg)
				}
				done <- err
			}()
			for range 2 {
				if err := <-done; !errors.Is(err, bus.StoreUnavailable) {
					t.Errorf("it ends with %v", err)
				}
			}
			if n := len(asked); (n > 0) != c.asks || n > 12 {
				t.Errorf("it was asked %d times for two requests", n)
			}
		})
	}
}

// Two generators that have none ask each other once for each request that waits, and no answer leads to another question for the same one.
func TestTwoDryGenerators(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	takes, err := nc.SubscribeSync(wire.SubjectTake + ".>")
	if err != nil {
		t.Fatal(err)
	}
	dry, full := pair(t, s)
	for _, r := range []*running{dry, full} {
		if _, err := r.Take(t.Context(), "order", 5000); !errors.Is(err, bus.StoreUnavailable) {
			t.Errorf("%s: %v", r.node, err)
		}
	}
	if n, _, _ := takes.Pending(); n > 2*2*3 {
		t.Errorf("they asked each other %d times", n)
	}
}

// A generator of another installation has other IDs of the same tag, and is not asked.
func TestAnotherInstallationIsNotAsked(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	dry, full := pair(t, s)
	for _, r := range []*running{dry, full} { // from then on they know that the store is away
		if _, err := r.Take(t.Context(), "order", 5000); err == nil {
			t.Fatal("IDs came from a store that is away")
		}
	}
	nc := natskit.Connect(t, s)
	offered := func(installation, tag string, n int) (left int64) {
		body := fmt.Sprintf(`{"run":"me","installation":"%s","tag":"%s","count":%d}`, installation, tag, n)
		inbox := nc.NewInbox()
		answers, err := nc.SubscribeSync(inbox)
		if err == nil {
			err = nc.PublishRequest(wire.SubjectHave, inbox, []byte(body))
		}
		for range 2 {
			var msg *nats.Msg
			if err == nil {
				msg, err = answers.NextMsg(testkit.Patience)
			}
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Run  string `json:"run"`
				Left int64  `json:"left"`
			}
			if err := json.Unmarshal(msg.Data, &got); err != nil || got.Run != full.RunID() && got.Run != dry.RunID() {
				t.Errorf("%s, %v", msg.Data, err)
			}
			if got.Run == full.RunID() {
				left = got.Left
			}
		}
		return left
	}
	for _, c := range []struct {
		installation, tag string
		want              int64
	}{
		{"own", "order", full.Left("order")}, {"own", "nosuch", 0}, {"other", "order", 0}, {"", "order", 0},
	} {
		for _, n := range []int{1, 1_000_000} {
			if got := offered(c.installation, c.tag, n); got != c.want {
				t.Errorf("%+v: %d", c, got)
			}
		}
	}
	if msg, err := nc.Request(wire.SubjectHave, []byte("garbage"), 50*time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("%v, %v", msg, err)
	}
}

// Many requests at once need one question, and what is offered is not promised twice.
func TestOffersAreShared(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	dry, full := pair(t, s)
	nc := natskit.Connect(t, s)
	questions, err := nc.SubscribeSync(wire.SubjectHave)
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	const callers = 200
	n := full.Left("order") / callers / 4 // a request that is slow may take them twice
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			if _, err := dry.Take(t.Context(), "order", n); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if n, _, _ := questions.Pending(); n > callers/4 {
		t.Errorf("%d questions for %d requests", n, callers)
	}
}
