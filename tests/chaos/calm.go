package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// calm checks what must hold when no fault strikes and all are ready.
func (w *world) calm() {
	w.serve()
	for _, tag := range permanent {
		w.recordEnd(tag)
	}
	w.leaks()
}

// inspectEvery is how often the schedule waits for checks that take longer.
const inspectEvery = 2 * time.Minute

// inspect checks what may need some time after the last fault.
func (w *world) inspect() {
	w.alertsEnd()
	w.reveal()
	w.audit()
	w.inspected = time.Now()
}

// answersWithin is how long a machine may say that it is ready and not answer: a store may be slow after a fault.
const answersWithin = 10 * time.Second

// serve demands that each machine that says it is ready answers: callers over HTTP trust that.
func (w *world) serve() {
	for _, m := range w.machines {
		for begun, since := time.Now(), time.Now(); m.isWanted(); w.pause(100 * time.Millisecond) {
			tag, failed := w.unanswered(m)
			if failed == "" {
				break
			}
			if !m.ready() && time.Since(begun) < readyWithin {
				w.awaitReady()
				since = time.Now()
			} else if time.Since(since) > answersWithin {
				w.violated("ready", tag, fmt.Sprintf("%s says that it is ready, and does not answer for %v: %s",
					m.name, answersWithin, failed))
			}
		}
	}
}

// unanswered asks a machine for IDs of all kinds over HTTP. It returns what failed; empty: it answered all.
func (w *world) unanswered(m *machine) (tag, failed string) {
	for _, tag := range []string{order, invoice, callers.Snowflakes} {
		path := "/api/segment/get/" + tag
		if tag == callers.Snowflakes {
			path = "/api/snowflake/get/any"
		}
		c := callers.Call{Kind: "HTTP", Tag: tag, Sent: time.Now()}
		status, body := get("http://" + m.http + path)
		id, err := strconv.ParseInt(strings.TrimSpace(body), 10, 64)
		if status != http.StatusOK || err != nil {
			return tag, fmt.Sprintf("%s: %d %s", path, status, body)
		}
		c.Ended, c.Ranges = time.Now(), []bus.Range{{First: id, Last: id}}
		w.crowd.record(c)
	}
	return "", ""
}

// catchUp is how long a replica of the records may be behind, and lateAnswers how long an answer waits for the judge.
const catchUp, lateAnswers = 30 * time.Second, 500 * time.Millisecond

// recordEnd demands that all IDs of a tag are below the end of its record. A replica of the record may answer that is
// behind for a moment (docs/guarantees.md), so it asks again.
func (w *world) recordEnd(tag string) {
	for end := time.Now().Add(catchUp); ; w.pause(lateAnswers) {
		highest, asked := w.highest(tag), time.Now()
		ctx, cancel := context.WithTimeout(w.ctx, catchUp)
		record, err := w.admin.Tag(ctx, tag)
		cancel()
		switch {
		case err == nil && (w.judge.IsOpaque(tag) || int64(record.MaxID) > highest):
			return
		case time.Now().Before(end):
		case err != nil:
			w.violated("ready", tag, "all is ready, and the record of a tag cannot be had: "+err.Error())
		default:
			w.judge.End(tag, int64(record.MaxID), asked.Add(-lateAnswers))
			return
		}
	}
}

// audit demands that leaf audit agrees with all that callers got. An excuse names the kind: "audit two_holders".
func (w *world) audit() {
	var taken bytes.Buffer
	for _, tag := range w.judge.Tags() {
		for _, r := range w.judge.Taken(tag) {
			if tag != callers.Snowflakes { // the judge knows those that came twice
				fmt.Fprintf(&taken, "%s %v\n", tag, r)
			}
		}
	}
	file := filepath.Join(w.dir, "taken")
	if err := os.WriteFile(file, taken.Bytes(), 0o600); err != nil {
		w.Fatal(err)
	}
	var r kit.Result
	var found []audit.Contradiction
	// On a busy machine an event may not come in time. The message says: try again.
	if !w.await(readyWithin, time.Second, func() bool {
		var err error
		r = w.operator("audit", "--json", "--taken", file)
		found, err = contradictions(r.Stdout)
		return err == nil && (len(found) > 0 || r.Status == 0)
	}) {
		w.violated("audit", "", fmt.Sprintf("all is ready, and leaf audit fails with exit status %d: %s", r.Status, r.Stderr))
	}
	for _, c := range found {
		if !w.judge.Forgives("audit "+string(c.Kind), c.Tag, time.Now()) {
			w.violated("audit", c.Tag, fmt.Sprintf("leaf audit says %s: %s", c.Kind, c.Message))
		}
	}
}

// revealed is how many IDs of the opaque tag are remembered with their numbers.
const revealed = 200

// reveal demands of the command what [world.compare] does.
func (w *world) reveal() {
	ids := w.someIDs(rand.IntN)
	if len(ids) == 0 {
		return
	}
	args := []string{"tag", "reveal", coupon, "--json"}
	for _, id := range ids {
		args = append(args, fmt.Sprint(int64(id)))
	}
	r := w.operator(args...)
	numbers, err := readRevealed(r.Stdout)
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
	defer cancel()
	record, recordErr := w.admin.Tag(ctx, coupon)
	if err = errors.Join(err, recordErr); r.Status != 0 || err != nil {
		w.violated("reveal", coupon, fmt.Sprintf("leaf tag reveal fails with exit status %d: %s %v", r.Status, r.Stderr, err))
	}
	w.compare(ids, numbers, record.MaxID)
}

// someIDs are opaque IDs that callers got: all with a known number, and some others.
func (w *world) someIDs(random func(n int) int) []bus.ID {
	ids := slices.Collect(maps.Keys(w.numbers))
	taken := w.judge.Taken(coupon)
	for range min(revealed/4, len(taken)) {
		ids = append(ids, bus.ID(taken[random(len(taken))].First))
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// compare demands that numbers of IDs are distinct, below the end of the record, and the same for good.
func (w *world) compare(ids []bus.ID, numbers map[bus.ID]bus.ID, end bus.ID) {
	if text := compareNumbers(w.numbers, ids, numbers, end); text != "" {
		w.violated("reveal", coupon, text)
	}
	for id, number := range numbers {
		if len(w.numbers) < revealed {
			w.numbers[id] = number
		}
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

// crashes demands that no process ever crashed, by all logs of the run.
func (w *world) crashes() {
	logs, err := filepath.Glob(filepath.Join(w.dir, "*", "log-*"))
	if err != nil || len(logs) == 0 {
		w.Fatalf("no log was found in %s: %v", w.dir, err)
	}
	for _, log := range logs {
		if text := crash(log); text != "" {
			w.violated("crash", "", fmt.Sprintf("%s (log: %s)", text, log))
		}
	}
}
