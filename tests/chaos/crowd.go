package main

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/chaos/judge"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// Tags that exist all the time. Faults make others.
const (
	order   = "order"   // in trend order
	stock   = "stock"   // in trend order, with so few IDs in memory that each request may need more
	invoice = "invoice" // strict
	coupon  = "coupon"  // opaque
)

// crowd is those who request IDs: callers of every kind for each tag, and for snowflakes.
type crowd struct {
	w     *world
	mu    sync.Mutex
	sets  map[string]*harness // by tag; closing one ends its callers and their connections
	seeds uint64
}

// deadline of each call.
const deadline = 500 * time.Millisecond

// add starts callers of a tag. Each goes to the doors of all NATS servers and generators.
func (c *crowd) add(tag string, strict bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seeds++
	cfg := callers.Config{
		Tags: []string{tag}, Batch: 50, Deadline: deadline, Pause: 100 * time.Millisecond, Seed: c.w.cfg.seed + c.seeds,
		Record: c.record, MayFail: func(callers.Call) bool { return true },
	}
	if strict {
		cfg.Strict = cfg.Tags
		c.w.judge.Strict(tag)
	}
	var addresses []string
	for _, m := range c.w.machines {
		addresses = append(addresses, "http://"+m.door.Addr())
	}
	c.sets[tag] = c.harness()
	callers.New(c.sets[tag], cfg).All(c.w.doors(), addresses...)
}

// harness is for a set of callers. Closing it ends them, and so does the end of the run: a series has more runs.
func (c *crowd) harness() *harness {
	h := &harness{dir: c.w.dir, ctx: c.w.ctx, fail: c.w.fail}
	c.w.Cleanup(h.close)
	return h
}

// busy adds callers that hardly pause, until the harness is closed.
func (c *crowd) busy(tag string) *harness {
	h := c.harness()
	set := callers.New(h, callers.Config{
		Tags: []string{tag}, Deadline: deadline, Pause: time.Millisecond, Seed: c.w.cfg.seed, Record: c.record,
		MayFail: func(callers.Call) bool { return true },
	})
	for range 8 {
		set.Next(c.w.doors())
	}
	return h
}

// never is the reasons that no valid request for a tag that exists may get, whatever fails.
var never = []bus.Reason{bus.BadRequest, bus.BadTag, bus.BatchTooLarge, bus.Internal}

// neverPermanent is the reasons that no request for a permanent tag may get.
var neverPermanent = append([]bus.Reason{bus.UnknownTag, bus.Exhausted}, never...)

func (c *crowd) record(call callers.Call) {
	call.Kind = kind(call)
	c.w.judge.Add(call)
	reasons := never
	if slices.Contains(permanent, call.Tag) {
		reasons = neverPermanent
	}
	for _, reason := range reasons {
		if errors.Is(call.Err, reason) && !c.w.judge.Forgives("reason "+string(reason), call.Tag, call.Ended) {
			text := call.Kind + ": " + call.Err.Error()
			c.w.report(&judge.Violation{Check: "reason", Tag: call.Tag, Text: text, At: call.Ended})
		}
	}
}

// remove ends the callers of a tag.
func (c *crowd) remove(tag string) {
	c.mu.Lock()
	set := c.sets[tag]
	delete(c.sets, tag)
	c.mu.Unlock()
	if set != nil {
		set.close()
	}
}

// tags are those with callers.
func (c *crowd) tags() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.sets))
}

// end ends all callers.
func (c *crowd) end() {
	for _, tag := range c.tags() {
		c.remove(tag)
	}
}
