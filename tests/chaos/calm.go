package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// calm checks what must hold when no fault strikes and all are ready. It begins with a check of all that came.
func (w *world) calm() {
	for _, tag := range w.crowd.tags() {
		if tag == callers.Snowflakes {
			continue
		}
		w.recordEnd(tag)
	}
}

// recordEnd demands that all IDs of a tag are below the end of its record.
func (w *world) recordEnd(tag string) {
	asked := time.Now()
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
	defer cancel()
	record, err := w.client.Tag(ctx, tag)
	switch {
	case errors.Is(err, bus.UnknownTag) && !slices.Contains(permanent, tag):
		return // it was just deleted
	case err != nil:
		w.violated("ready", tag, "all is ready, and the record of a tag cannot be had: "+err.Error())
		return
	}
	if tag != coupon {
		w.judge.End(tag, int64(record.MaxID), asked)
	}
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
