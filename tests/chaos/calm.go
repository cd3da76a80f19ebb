package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// calm checks what must hold when no fault strikes and all are ready. It begins with a check of all that came.
func (w *world) calm() {
	w.agree()
	for _, tag := range w.crowd.tags() {
		if tag == callers.Snowflakes {
			continue
		}
		w.recordEnd(tag)
	}
}

// agree waits until each NATS server has all of the tags. A server that is behind, or that does not know yet that it
// leads no longer, may answer the question for a record with an old one.
func (w *world) agree() {
	why := "the first question had no answer"
	for end := time.Now().Add(readyWithin); why != "" && time.Now().Before(end); w.pause(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		stream, err := w.js.Stream(ctx, "KV_"+bus.BucketTags)
		cancel()
		if err != nil {
			why = err.Error()
			continue
		}
		why = ""
		if c := stream.CachedInfo().Cluster; c != nil {
			for _, r := range c.Replicas {
				if !r.Current || r.Lag > 0 || r.Active > 3*time.Second {
					why = fmt.Sprintf("%s says that %s is %d behind, heard %v ago", c.Leader, r.Name, r.Lag, r.Active)
				}
			}
		}
	}
	if why != "" {
		w.violated("ready", "", fmt.Sprintf("%v after all is ready not every NATS server has all tags: %s", readyWithin, why))
	}
}

// recordEnd demands that all IDs of a tag are below the end of its record. It asks again after an error: a NATS server
// that led, and is back, refuses questions until it has heard the new leader.
func (w *world) recordEnd(tag string) {
	var err error
	for end := time.Now().Add(readyWithin); time.Now().Before(end); w.pause(100 * time.Millisecond) {
		asked := time.Now()
		ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
		var record bus.Tag
		record, err = w.client.Tag(ctx, tag)
		cancel()
		switch {
		case errors.Is(err, bus.UnknownTag) && !slices.Contains(permanent, tag):
			return // it was just deleted
		case err == nil && tag != coupon:
			w.judge.End(tag, int64(record.MaxID), asked)
			return
		case err == nil:
			return
		}
	}
	w.violated("ready", tag, "all is ready, and the record of a tag cannot be had: "+err.Error())
}

// permanent are the tags that no fault deletes.
var permanent = []string{order, stock, invoice, coupon}

// judging looks for a broken promise all the time.
func (w *world) judging() {
	for ; w.ctx.Err() == nil; w.pause(200 * time.Millisecond) {
		if v := w.judge.Check(time.Now()); v != nil {
			w.report(v)
		}
	}
}
