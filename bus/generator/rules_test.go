package generator_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// update sends leaf.admin.tags.update once.
func update(t *testing.T, nc *nats.Conn, body string) {
	t.Helper()
	if reply, code := ask(t, nc, admin.SubjectTagsUpdate, body); code != "" {
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

// three starts three generators that hear each other, hear of no change from the records, and have IDs of
// order and invoice.
func three(t *testing.T) (*nats.Conn, []*running) {
	t.Helper()
	s := natskit.Start(t)
	store := memory(t)
	withInvoice(t, store)
	add(t, store, allocator.Tag{Name: "order", Step: 1000})
	nodes := []string{"one", "two", "three"}
	var all []*running
	for _, node := range nodes {
		r := start(t, s, node, &blind{Records: open(store)}, nil)
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

// An operator's max_id is in force at every generator when the reply comes.
func TestMaxIDMovesEverywhere(t *testing.T) {
	t.Parallel()
	nc, all := three(t)
	for _, to := range []int64{70_000, 170_000, 270_000} {
		update(t, nc, fmt.Sprintf(`{"tag":"order","max_id":"%d"}`, to))
		for _, r := range all {
			if ranges, err := r.Take(t.Context(), "order", 1); err != nil || ranges[0].First < to {
				t.Errorf("after max_id was moved to %d: %v, %v", to, ranges, err)
			}
		}
	}
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
		update(t, nc, `{"tag":"`+tag+`","limit":"2","force":true}`)
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
	if e := all[0].refuses(t, "order", 5, bus.QuotaExceeded); e.RetryAfter < 3*time.Second ||
		e.RetryAfter > 5*time.Second {
		t.Errorf("5 IDs at 1 ID a second: retry after %v", e.RetryAfter)
	}
}

// TestEndingEpisodes: an operator can begin and end the alert that a tag comes to its limit.
func TestEndingEpisodes(t *testing.T) {
	t.Parallel()
	nc, all := three(t)
	stream := eventsOn(t, nc)
	alerts, ends := 0, 0
	want := func(what string, newAlerts, newEnds int) {
		t.Helper()
		alerts, ends = alerts+newAlerts, ends+newEnds
		ended := func() (n int) {
			for _, e := range stream("leaf.segment.recovered") {
				if e.Body.(events.Recovered).Episode == "ending" {
					n++
				}
			}
			return n
		}
		testkit.Eventually(t, what,
			func() bool { return len(stream("leaf.segment.ending")) >= alerts && ended() >= ends })
		if n, m := len(stream("leaf.segment.ending")), ended(); n != alerts || m != ends {
			t.Errorf("%s: %d alerts and %d ends, want %d and %d", what, n, m, alerts, ends)
		}
		testkit.Eventually(t, what+" is a finding", func() bool {
			return alerts > ends == slices.ContainsFunc(all, func(r *running) bool {
				return slices.ContainsFunc(r.State().Findings,
					func(f admin.Finding) bool { return f.Kind == "segment.ending" })
			})
		})
	}
	update(t, nc, `{"tag":"order","limit":"100000"}`)
	update(t, nc, `{"tag":"order","max_id":"80000","force":true}`)
	update(t, nc, `{"tag":"order","max_id":"80001"}`)
	want("max_id moved", 1, 0)
	e := stream("leaf.segment.ending")[0]
	if body := e.Body.(events.Ending); e.Key != "order" || e.Severity != "alert" || body.Tag != "order" ||
		body.Left != 20_000 || body.Limit != 100_000 {
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
	if reply, code := ask(t, nc, admin.SubjectTagsDelete, `{"tag":"order"}`); code != "" {
		t.Errorf("%s %s", code, reply)
	}
	want("deleted", 0, 1)
	if reply, code := ask(t, nc, admin.SubjectTagsCreate, `{"tag":"bill","max_id":"9000","limit":"10000"}`); code != "" {
		t.Errorf("%s %s", code, reply)
	}
	want("created near its limit", 1, 0)
}

// TestEndingOfOneThatWasCutOff: an operator ends the alert while the generator that raised it is cut off.
func TestEndingOfOneThatWasCutOff(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	memory := memory(t)
	for _, tag := range []string{"raised", "deleted", "ends"} {
		add(t, memory, allocator.Tag{Name: tag, Step: 100, Rules: allocator.Rules{Limit: 1000, Version: 1}})
	}
	cut, link := behind(t, s, "cut", memory, nil)
	other := start(t, s, "other", memory, nil)
	ending := func() (keys []string) {
		for _, f := range cut.State().Findings {
			if f.Kind == "segment.ending" {
				keys = f.Keys
			}
		}
		return keys
	}
	for _, tag := range []string{"raised", "deleted", "ends"} {
		cut.takeAll(t, tag, 900)
	}
	if keys := ending(); len(keys) != 3 {
		t.Fatalf("the finding is about %v", keys)
	}
	link.Refuse(true)
	testkit.Eventually(t, "it is not heard", func() bool { return !other.Hears("cut") })
	update(t, nc, `{"tag":"raised","limit":"100000"}`)
	if reply, code := ask(t, nc, admin.SubjectTagsDelete, `{"tag":"deleted"}`); code != "" {
		t.Errorf("%s %s", code, reply)
	}
	link.Refuse(false)
	testkit.Eventually(t, "the finding ends", func() bool { return slices.Equal(ending(), []string{"ends"}) })
}
