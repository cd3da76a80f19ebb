package generator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// update sends leaf.admin.tags.update once.
func update(t *testing.T, nc *nats.Conn, body string) {
	t.Helper()
	if reply, code := ask(t, nc, bus.SubjectTagsUpdate, body); code != "" {
		t.Fatalf("%s: %s %s", body, code, reply)
	}
}

func (r *running) refuses(t *testing.T, tag string, n int64, reason bus.Reason) *bus.Error {
	t.Helper()
	ranges, err := r.Take(t.Context(), tag, n)
	e, ok := errors.AsType[*bus.Error](err)
	if !ok || e.Reason != reason {
		t.Errorf("%s: %d IDs of %s: %v, %v; want %s", r.node, n, tag, ranges, err, reason)
		return &bus.Error{}
	}
	return e
}

// three starts three generators that hear each other, hear nothing from their store by themselves, and have IDs of order and invoice.
func three(t *testing.T) (*nats.Conn, []*running) {
	t.Helper()
	s := natskit.Start(t)
	store := memory(t)
	withInvoice(t, store)
	if _, err := store.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 1, Step: 1000}); err != nil {
		t.Fatal(err)
	}
	nodes := []string{"one", "two", "three"}
	var all []*running
	for _, node := range nodes {
		r := start(t, s, node, &blind{Store: store}, nil)
		r.takeAll(t, "order", 1)
		r.takeAll(t, "invoice", 1)
		all = append(all, r)
	}
	testkit.Eventually(t, "all hear each other", func() bool {
		for _, r := range all {
			for _, node := range nodes {
				if node != r.node && !r.Hears(node) {
					return false
				}
			}
		}
		return true
	})
	return natskit.Connect(t, s), all
}

// TestRulesAreInForce: when the operator has the answer, no generator goes against the rules.
func TestRulesAreInForce(t *testing.T) {
	t.Parallel()
	nc, all := three(t)
	for _, tag := range []string{"order", "invoice"} {
		for range 5 {
			update(t, nc, `{"tag":"`+tag+`","paused":true}`)
			for _, r := range all {
				r.refuses(t, tag, 1, bus.Paused)
			}
			update(t, nc, `{"tag":"`+tag+`","paused":false}`)
			for _, r := range all {
				r.takeAll(t, tag, 1)
			}
		}
		update(t, nc, `{"tag":"`+tag+`","limit":"2"}`)
		for _, r := range all {
			r.refuses(t, tag, 1, bus.Exhausted)
		}
		update(t, nc, `{"tag":"`+tag+`","limit":"0"}`)
		for _, r := range all {
			r.takeAll(t, tag, 1)
		}
	}
	testkit.Eventually(t, "the quota is shared by three", func() bool {
		// What a generator had of an earlier quota is gone with that.
		update(t, nc, `{"tag":"order","quota":{"per_second":0}}`)
		update(t, nc, `{"tag":"order","quota":{"per_second":3,"burst":30}}`)
		for _, r := range all {
			r.takeAll(t, "order", 10)
			if _, err := r.Take(t.Context(), "order", 5); !errors.Is(err, bus.QuotaExceeded) {
				return false
			}
		}
		return true
	})
	if e := all[0].refuses(t, "order", 5, bus.QuotaExceeded); e.RetryAfter < 3*time.Second || e.RetryAfter > 5*time.Second {
		t.Errorf("5 IDs at 1 ID a second: retry after %v", e.RetryAfter)
	}
}

// TestRulesOverNATS: the codes and bodies of requests that the rules refuse, and of changes that do not fit.
func TestRulesOverNATS(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := memory(t, "order")
	withInvoice(t, store)
	start(t, s, "one", store, nil)
	nc := natskit.Connect(t, s)
	for _, c := range []struct{ subject, body, code, reply string }{
		{bus.SubjectTagsUpdate, `{"tag":"order","paused":true}`, "", `"paused":true`},
		{"leaf.segment.order", ``, "403", `"code":403,"reason":"paused"`},
		{"leaf.segment.order", `{"count":5}`, "403", `"reason":"paused"`},
		{bus.SubjectTagsUpdate, `{"tag":"order","paused":false,"quota":{"per_second":1,"burst":2}}`, "", `"quota":{"per_second":1,"burst":2}`},
		{"leaf.segment.order", `2`, "", "1-2"},
		{"leaf.segment.order", `1`, "429", `"code":429,"reason":"quota_exceeded"`},
		{"leaf.segment.order", `1`, "429", `"retry_after_ms":`},
		{"leaf.segment.order", `3`, "413", `"reason":"batch_too_large"`},
		{bus.SubjectTagsUpdate, `{"tag":"order","quota":{"per_second":0},"limit":"4"}`, "", `"limit":"4"`},
		{"leaf.segment.order", `2`, "", "3-4"},
		{"leaf.segment.order", `1`, "507", `"code":507,"reason":"exhausted"`},
		{bus.SubjectTagsUpdate, `{"tag":"order","outlast":"1h","max_step":50,"limit":9007199254740993}`, "", `"outlast":"1h","max_step":50,"limit":"9007199254740993"`},
		{"leaf.segment.order", `1`, "", "21"}, // what was in memory was above the limit

		{bus.SubjectTagsUpdate, `{"tag":"order","quota":{"per_second":-1}}`, "400", "quota"},
		{bus.SubjectTagsUpdate, `{"tag":"order","quota":{"per_second":1.5}}`, "400", `"bad_request"`},
		{bus.SubjectTagsUpdate, `{"tag":"order","quota":{"per_minute":1}}`, "400", `"bad_request"`},
		{bus.SubjectTagsUpdate, `{"tag":"order","quota":"1000/s"}`, "400", `"bad_request"`},
		{bus.SubjectTagsUpdate, `{"tag":"order","paused":"yes"}`, "400", `"bad_request"`},
		{bus.SubjectTagsUpdate, `{"tag":"order","outlast":"15"}`, "400", "15m"},
		{bus.SubjectTagsUpdate, `{"tag":"order","outlast":900}`, "400", `"bad_request"`},
		{bus.SubjectTagsUpdate, `{"tag":"order","outlast":"1ms"}`, "400", "outlast"},
		{bus.SubjectTagsUpdate, `{"tag":"order","max_step":5}`, "400", "step"},
		{bus.SubjectTagsUpdate, `{"tag":"order","step":51}`, "400", "max_step"},
		{bus.SubjectTagsUpdate, `{"tag":"order","limit":"x"}`, "400", "limit"},
		{bus.SubjectTagsUpdate, `{"tag":"order","limit":"-1"}`, "400", "limit"},
		{bus.SubjectTagsUpdate, `{"tag":"order","limit":"9223372036854775807"}`, "400", "limit"},
		{bus.SubjectTagsUpdate, `{"tag":"order","rules_version":"5"}`, "400", `"bad_request"`},
		{bus.SubjectTagsUpdate, `{"tag":"invoice","outlast":"1h"}`, "400", "strict"},
		{bus.SubjectTagsUpdate, `{"tag":"invoice","max_step":50}`, "400", "strict"},
		{bus.SubjectTagsUpdate, `{"tag":"nobody","paused":true}`, "404", `"unknown_tag"`},
		{bus.SubjectTagsUpdate, `{"tag":"order"}`, "400", "limit"},
		{bus.SubjectTagsGet, `{"tag":"order"}`, "", `"outlast":"1h","max_step":50,"limit":"9007199254740993"`},
		{bus.SubjectTagsList, `{}`, "", `"outlast":"1h","max_step":50,"limit":"9007199254740993"`},

		{bus.SubjectTagsCreate, `{"tag":"bill","max_step":5}`, "400", "step"},
		{bus.SubjectTagsCreate, `{"tag":"bill","order":"strict","outlast":"1h"}`, "400", "strict"},
		{bus.SubjectTagsCreate, `{"tag":"bill","step":10,"quota":{"per_second":5},"paused":true,"outlast":"1h30m","max_step":50,"limit":"7"}`, "",
			`"quota":{"per_second":5,"burst":5},"paused":true,"outlast":"1h30m","max_step":50,"limit":"7"`},
		{"leaf.segment.bill", ``, "403", `"paused"`},
		{bus.SubjectTagsDelete, `{"tag":"bill"}`, "", `"bill"`},
		{bus.SubjectTagsCreate, `{"tag":"bill"}`, "", `"bill"`},
		{"leaf.segment.bill", `10`, "", "1-10"},
		{bus.SubjectTagsGet, `{"tag":"bill"}`, "", `"step":1000`},
	} {
		reply, code := ask(t, nc, c.subject, c.body)
		if code != c.code || !strings.Contains(reply, c.reply) {
			t.Errorf("%s %s is answered with %s %s, want %s %s", c.subject, c.body, code, reply, c.code, c.reply)
		}
		if code == "" && strings.Contains(reply, "rules_version") || c.subject == bus.SubjectTagsCreate && c.body == `{"tag":"bill"}` && strings.Contains(reply, "paused") {
			t.Errorf("%s %s is answered with %s", c.subject, c.body, reply)
		}
	}
}

// IDs that another generator has sent are dropped if an operator has forbidden them while they were on their way.
func TestOtherIDsAgainstTheRules(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		order string // of the tag
		rules string
		taken bool
	}{
		"above the limit":         {"trend", `"limit":"99"`, false},
		"up to the limit":         {"trend", `"limit":"100"`, true},
		"paused":                  {"trend", `"paused":true`, false},
		"strict, above the limit": {"strict", `"limit":"99"`, false},
		"strict, up to the limit": {"strict", `"limit":"100"`, true},
		"strict, but the rules are of an older version": {"strict", `"limit":"99","rules_version":"0"`, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			nc := natskit.Connect(t, s)
			store := memory(t, "order")
			withInvoice(t, store)
			tag, record := "order", `"step":10`
			if c.order == "strict" {
				tag, record = "invoice", `"step":0,"order":"strict"`
			}
			dry, away := startIn(t, s, "dry", "own", store, nil)
			dry.takeAll(t, tag, 1)
			away.away.Store(true)
			_, err := nc.Subscribe(wire.SubjectHave, func(msg *nats.Msg) { _ = msg.Respond([]byte(`{"run":"run-of-near","left":1000}`)) })
			if err != nil {
				t.Fatal(err)
			}
			_, err = nc.Subscribe(wire.SubjectTake+".run-of-near", func(msg *nats.Msg) {
				rules := c.rules
				if !strings.Contains(rules, "version") {
					rules += `,"rules_version":"5"`
				}
				if reply, code := ask(t, nc, wire.SubjectTagChanged, fmt.Sprintf(`{"tag":%q,"max_id":"50",%s,%s}`, tag, record, rules)); code != "" {
					t.Errorf("the change of the tag: %s", reply)
				}
				answer := &nats.Msg{Subject: msg.Reply, Data: []byte("51-100"), Header: nats.Header{}}
				if c.order == "strict" {
					answer.Header.Set(bus.HeaderOrder, bus.OrderStrict)
				}
				_ = nc.PublishMsg(answer)
			})
			if err != nil {
				t.Fatal(err)
			}
			dry.report(t, nc, "near", `,"segment":true,"strict":true,"rules":true`)
			if ranges, err := dry.Take(t.Context(), tag, 50); (err == nil) != c.taken {
				t.Errorf("%v, %v", ranges, err)
			}
		})
	}
}

// A generator of an older version would write the record without its rules. So none are set beside it.
func TestNoRulesBesideAnOlderPeer(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	one := start(t, s, "one", memory(t, "order"), nil)
	nc := natskit.Connect(t, s)
	one.report(t, nc, "old", `,"strict":true`)
	for _, c := range []struct{ subject, body, code string }{
		{bus.SubjectTagsUpdate, `{"tag":"order","paused":true}`, "409"},
		{bus.SubjectTagsCreate, `{"tag":"bill","limit":"5"}`, "409"},
		{bus.SubjectTagsUpdate, `{"tag":"order","description":"orders"}`, ""},
		{bus.SubjectTagsCreate, `{"tag":"bill"}`, ""},
	} {
		if reply, code := ask(t, nc, c.subject, c.body); code != c.code || code != "" && !strings.Contains(reply, "the generator old is of an older version") {
			t.Errorf("%s: %s %s", c.body, code, reply)
		}
	}
	one.report(t, nc, "old", `,"gone":true`)
	one.report(t, nc, "new", `,"strict":true,"rules":true,"gone":true`)
	update(t, nc, `{"tag":"order","limit":"500"}`)
}

// TestEndingEpisodes: an operator can begin and end the alert that a tag comes to its limit.
func TestEndingEpisodes(t *testing.T) {
	t.Parallel()
	nc, all := three(t)
	stream := events(t, nc)
	alerts, ends := 0, 0
	want := func(what string, newAlerts, newEnds int) {
		t.Helper()
		alerts, ends = alerts+newAlerts, ends+newEnds
		ended := func() (n int) {
			for _, e := range stream("leaf.segment.recovered") {
				if e.Body.(bus.RecoveredEvent).Episode == "ending" {
					n++
				}
			}
			return n
		}
		testkit.Eventually(t, what, func() bool { return len(stream("leaf.segment.ending")) >= alerts && ended() >= ends })
		if n, m := len(stream("leaf.segment.ending")), ended(); n != alerts || m != ends {
			t.Errorf("%s: %d alerts and %d ends, want %d and %d", what, n, m, alerts, ends)
		}
	}
	update(t, nc, `{"tag":"order","limit":"100000"}`)
	update(t, nc, `{"tag":"order","max_id":"80000"}`)
	update(t, nc, `{"tag":"order","max_id":"80001"}`)
	want("max_id moved", 1, 0)
	e := stream("leaf.segment.ending")[0]
	if body := e.Body.(bus.EndingEvent); e.Key != "order" || e.Severity != "alert" || body.Tag != "order" || body.Left != 20_000 || body.Limit != 100_000 {
		t.Errorf("the alert is %+v", e)
	}
	update(t, nc, `{"tag":"order","max_id":"80002","limit":"90000"}`)
	want("more of it", 0, 0)
	update(t, nc, `{"tag":"order","limit":"200000"}`)
	want("limit raised", 0, 1)
	for range 70 {
		for _, r := range all {
			r.takeAll(t, "order", 400) // from 80,002 to beyond 160,000
		}
	}
	want("80 % used", 1, 0)
	if reply, code := ask(t, nc, bus.SubjectTagsDelete, `{"tag":"order"}`); code != "" {
		t.Errorf("%s %s", code, reply)
	}
	want("deleted", 0, 1)
	if reply, code := ask(t, nc, bus.SubjectTagsCreate, `{"tag":"bill","max_id":"9000","limit":"10000"}`); code != "" {
		t.Errorf("%s %s", code, reply)
	}
	want("created near its limit", 1, 0)
}

// TestQuotaOfAStrictTagWithoutClaims: a generator whose claims fail answers with IDs of another one, within its own share of the quota.
// MaxWait decides whether its requests wait first.
func TestQuotaOfAStrictTagWithoutClaims(t *testing.T) {
	t.Parallel()
	for what, maxWait := range map[string]time.Duration{"refused at once": 50 * time.Millisecond, "waiting": testkit.Patience} {
		for _, http := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, HTTP %v", what, http), func(t *testing.T) {
				t.Parallel()
				s := natskit.Start(t)
				store := memory(t, "other")
				withInvoice(t, store)
				dry, own := startIn(t, s, "dry", "own", store, func(cfg *generator.Config) { cfg.MaxWait = maxWait })
				full, _ := startIn(t, s, "full", "own", store, nil)
				testkit.Eventually(t, "both hear each other", func() bool { return dry.Hears("full") && full.Hears("dry") })
				dry.takeAll(t, "other", 1) // so that it stays in the queue group
				dry.takeAll(t, "invoice", 1)
				full.takeAll(t, "invoice", 1)
				nc := natskit.Connect(t, s)
				update(t, nc, `{"tag":"invoice","quota":{"per_second":1,"burst":40}}`)
				own.away.Store(true)
				begin, n, borrowed := time.Now(), 0, dry.State().Counts.Borrowed
				for range 120 {
					if http {
						if _, err := dry.Take(t.Context(), "invoice", 1); err == nil {
							n++
						}
					} else if _, code := ask(t, nc, "leaf.segment.invoice", ""); code == "" { // of any of the two
						n++
					}
				}
				if most := 42 + int(time.Since(begin).Seconds()); n > most {
					t.Errorf("%d IDs came, want at most %d", n, most)
				}
				if n := dry.State().Counts.Borrowed - borrowed; n < 5 {
					t.Errorf("the generator without claims got %d IDs of the other one", n)
				}
			})
		}
	}
}

// TestClientAndQuota: the client waits for a quota if its caller does, and asks seldom.
func TestClientAndQuota(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	one := start(t, s, "one", memory(t, "order"), nil)
	nc := natskit.Connect(t, s)
	c := bus.NewClient(nc)
	within := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		t.Cleanup(cancel)
		return ctx
	}
	empty := func(perSecond int64) {
		update(t, nc, `{"tag":"order","quota":{"per_second":0}}`)
		update(t, nc, fmt.Sprintf(`{"tag":"order","quota":{"per_second":%d,"burst":20}}`, perSecond))
		one.takeAll(t, "order", 20)
	}
	refusals := func() int64 {
		return one.State().Counts.Errors[bus.QuotaExceeded] + one.State().Counts.Errors[bus.Paused]
	}
	calls := map[string]func(context.Context) error{
		"Take": func(ctx context.Context) error { _, err := c.Take(ctx, "order", 1); return err },
		"Next": func(ctx context.Context) error { _, err := c.Next(ctx, "order"); return err },
		"Pool": func(ctx context.Context) error {
			p, err := c.Pool("order", bus.Ahead(1, 15))
			if err == nil {
				defer p.Close()
				_, err = p.Next(ctx)
			}
			return err
		},
	}
	for what, call := range calls {
		empty(2)
		if err := call(within(testkit.Patience)); err != nil {
			t.Errorf("%s waits for half a second: %v", what, err)
		}
		empty(1)
		before := refusals()
		err := call(within(300 * time.Millisecond))
		if e, ok := errors.AsType[*bus.Error](err); !ok || e.Reason != bus.QuotaExceeded || e.RetryAfter < 300*time.Millisecond {
			t.Errorf("%s with too little time: %v", what, err)
		}
		if n := refusals() - before; n > 5 {
			t.Errorf("%s asked %d times in vain", what, n)
		}
		update(t, nc, `{"tag":"order","quota":{"per_second":0},"paused":true}`)
		before = refusals()
		if err := call(within(testkit.Patience)); !errors.Is(err, bus.Paused) {
			t.Errorf("%s of a paused tag: %v", what, err)
		}
		if n := refusals() - before; n > 2 {
			t.Errorf("%s asked %d times for a paused tag", what, n)
		}
		update(t, nc, `{"tag":"order","paused":false}`)
	}
	// Smaller and smaller requests use up the quota until the time is over. The error names the quota, and not only the time.
	update(t, nc, `{"tag":"order","quota":{"per_second":1000,"burst":1000}}`)
	var last error
	for _, err := range c.Ranges(within(300*time.Millisecond), "order", 5000) {
		last = err
	}
	if !errors.Is(last, bus.QuotaExceeded) {
		t.Errorf("a bulk read beyond the quota: %v", last)
	}
}
