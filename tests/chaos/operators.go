package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// patience is how long an operator tries. All other faults of a round are over by then, and a minute more.
const patience = 3 * readyWithin

// unheard finds the names of the generators that did not hear of a change.
var unheard = regexp.MustCompile(`these generators fell silent in the last hour: (.*)\. One that`)

// change is a command that changes tags.
type change struct {
	args func() []string // for each attempt
	// demand makes the judge demand what holds from then on; nil: nothing. Without a generator that did not hear of it,
	// that is when the command has returned.
	demand func(r kit.Result, at time.Time)
	done   bus.Reason // the refusal which says that a former attempt has changed the tag; empty: there is none
}

func always(args ...string) func() []string { return func() []string { return args } }

// command sends a command until it succeeded, and until all generators must obey. A failed command may have
// happened, or may still happen while a link holds it back. So the next attempt waits until all machines are ready.
// It reports whether all must obey.
func (s *strike) command(c change) bool {
	var last string
	for attempt, began := 0, time.Now(); time.Since(began) < patience; attempt++ {
		blind := s.blind()
		r := s.operator(c.args()...)
		at := time.Now()
		switch {
		case r.Status != 0 && attempt > 0 && c.done != "" && strings.Contains(r.Stderr, string(c.done)):
			return false // nobody knows who heard of it
		case r.Status != 0:
			last = r.Stderr
		case c.demand == nil:
			return true
		case !s.unbound(r) && !blind && !s.blind():
			c.demand(r, at)
			return true
		case s.asksWhenBack():
			if !s.settle() {
				return false
			}
			s.pause(time.Second) // for an alert that says that one could not ask
			if !s.noted(at, "event alert.node.stale") {
				s.note("those that did not hear of the command are back, and must have obeyed since then")
				c.demand(r, at)
				return true
			}
		default:
			last = r.Stderr
		}
		if !s.settle() {
			return false
		}
		s.pause(500 * time.Millisecond) // for a heartbeat of those that came back
	}
	s.violated("command", "", fmt.Sprintf("leaf %s fails for %v, though all machines are ready: %s",
		strings.Join(c.args(), " "), patience, last))
	return false
}

// unbound reports whether a generator that did not hear of a change still runs. Those that were killed can be ignored.
func (w *world) unbound(r kit.Result) bool {
	found := unheard.FindStringSubmatch(r.Stderr)
	if found == nil {
		return false
	}
	nodes := strings.Split(found[1], ", ")
	if slices.ContainsFunc(w.machines, func(m *machine) bool { return slices.Contains(nodes, m.node()) && m.alive() }) {
		return true
	}
	w.mu.Lock()
	guests := slices.Clone(w.guests)
	w.mu.Unlock()
	return slices.ContainsFunc(guests, func(g *guest) bool { return slices.Contains(nodes, g.name) && g.alive() })
}

// blind reports whether a generator may answer operators that never heard of one which is silent. Its answer does not
// name that one, and promises nothing for it.
func (w *world) blind() bool {
	silent, young := false, false
	for _, m := range w.machines {
		silent = silent || m.alive() && !m.ready()
		young = young || m.age() < time.Minute
	}
	return silent && young
}

// asksWhenBack reports whether all who are silent ask the store when they are back, before they answer callers. That is
// not promised after a fault of a link, nor if a JetStream replica that is behind may answer.
func (s *strike) asksWhenBack() bool {
	return !slices.ContainsFunc(s.beside, func(o *strike) bool {
		kills := slices.Contains([]string{"kill", "gone", "restart", "rolling", "start-killed"}, o.name)
		return o != s && !kills && (o.name != "freeze" || s.cfg.servers != "joined")
	})
}

// settle waits until all machines run and are ready. It reports false if that takes longer than any fault lasts.
func (s *strike) settle() bool {
	if s.await(2*readyWithin, 100*time.Millisecond, func() bool {
		return !slices.ContainsFunc(s.machines, func(m *machine) bool { return !m.ready() })
	}) {
		return true
	}
	s.note("an operator gives up: not all machines are ready")
	return false
}

// noted reports whether a note with this beginning was made since then.
func (w *world) noted(since time.Time, begin string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.notes, func(n note) bool { return n.at.After(since) && strings.HasPrefix(n.text, begin) })
}

// write puts a text into a file for a command.
func (s *strike) write(text string) (path string) {
	path = filepath.Join(s.dir, s.name+".yaml")
	kit.Must(s, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// record reads a tag's record. It reports false if the operator gave up.
func (s *strike) record(tag string) (r admin.TagRecord, ok bool) {
	for began := time.Now(); ; s.pause(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
		r, err := s.admin.Tag(ctx, tag)
		cancel()
		switch {
		case err == nil:
			return r, true
		case !s.settle():
			return r, false
		case time.Since(began) > patience:
			s.violated("command", tag, fmt.Sprintf("all are ready, and the record cannot be read: %v", err))
		}
	}
}

// Orders of tags.
const (
	trend  = "trend"
	strict = "strict"
	opaque = "opaque"
)

// subject is a tag that operators change.
type subject struct {
	s     *strike
	tag   string
	order string
}

// subject is a tag that does not exist yet.
func (s *strike) subject(order string) *subject {
	return &subject{s, fmt.Sprintf("ops.%08x", s.Uint32()), order}
}

// newSubject makes a tag with callers of its own.
func (s *strike) newSubject(order string, args ...string) *subject {
	t := s.subject(order)
	if order == opaque {
		s.judge.Opaque(t.tag, 1<<53-1)
	}
	t.create(args...)
	s.crowd.add(t.tag, order == strict)
	return t
}

// anyOrder is a random one.
func (s *strike) anyOrder() string { return []string{trend, trend, strict, opaque}[s.IntN(4)] }

// create makes the tag, or makes it again.
func (t *subject) create(args ...string) {
	switch t.order {
	case strict:
		args = append(args, "--order", "strict")
	case opaque:
		args = append(args, "--opaque=53")
	}
	t.s.judge.Create(t.tag, time.Now())
	t.s.command(change{args: always(append([]string{"tag", "add", t.tag}, args...)...), done: bus.Exists})
}

// remove deletes the tag.
func (t *subject) remove() {
	t.s.command(change{args: always("tag", "rm", t.tag, "--yes"), done: bus.UnknownTag,
		demand: func(_ kit.Result, at time.Time) { t.s.judge.Delete(t.tag, at) }})
}

// end deletes the tag, and ends its callers a moment later.
func (t *subject) end() {
	t.remove()
	t.s.last(0, time.Second)
	t.s.crowd.remove(t.tag)
}

// set is an attempt to change a field, in one of the two ways that operators have: a flag, or a file.
func (t *subject) set(args []string, field string) func() []string {
	if t.s.IntN(3) > 0 {
		return always(args...)
	}
	return always("tag", "apply", "-f", t.s.write(fmt.Sprintf("tags: [{tag: %s, %s}]\n", t.tag, field)))
}

func (t *subject) pauseTag() bool {
	return t.s.command(change{args: t.set([]string{"tag", "pause", t.tag}, "paused: true"),
		demand: func(_ kit.Result, at time.Time) { t.s.judge.Pause(t.tag, at) }})
}

func (t *subject) resumeTag() {
	t.s.judge.Resume(t.tag, time.Now())
	t.s.command(change{args: t.set([]string{"tag", "resume", t.tag}, "paused: false")})
}

// limit sets the largest ID. The former limit must be above, or removed. Meanwhile callers may move max_id above it.
func (t *subject) limit(last int64) bool {
	return t.s.command(change{
		args: func() []string {
			set := t.set([]string{"tag", "set", t.tag, "--limit", fmt.Sprint(last)}, fmt.Sprintf("limit: %d", last))
			return append(set(), "--force")
		},
		demand: func(_ kit.Result, at time.Time) { t.s.judge.Limit(t.tag, last, at) },
	})
}

func (t *subject) unlimit() {
	t.s.judge.Limit(t.tag, 0, time.Now())
	t.s.command(change{args: t.set([]string{"tag", "set", t.tag, "--limit", "none"}, "limit: none")})
}

// floor moves max_id up to first, or at a later attempt above what callers have meanwhile.
func (t *subject) floor(first int64) {
	again := false
	t.s.command(change{
		args: func() []string {
			if again {
				r, _ := t.s.record(t.tag)
				first = max(first, int64(r.MaxID)+5000)
			}
			again = true
			return []string{"tag", "set", t.tag, "--max-id", fmt.Sprint(first)}
		},
		demand: func(_ kit.Result, at time.Time) { t.s.judge.Floor(t.tag, first, at) },
	})
}

// advance moves max_id above all that is in use. Generators drop what they have below.
func (t *subject) advance() {
	t.s.command(change{args: always("tag", "advance", t.tag, "--json"), demand: func(r kit.Result, at time.Time) {
		var done struct{ Tags []admin.TagAdvance }
		if err := json.Unmarshal([]byte(r.Stdout), &done); err != nil || len(done.Tags) != 1 {
			t.s.violated("command", t.tag, fmt.Sprintf("leaf tag advance --json printed %q", r.Stdout))
		}
		t.s.judge.Floor(t.tag, int64(done.Tags[0].MaxID), at)
	}})
}

// answers demands that callers get IDs, now that no rule forbids it.
func (t *subject) answers() {
	var err error
	for began := time.Now(); time.Since(began) < patience; t.s.pause(time.Second) {
		if !t.s.settle() {
			return
		}
		call := callers.Call{Kind: "operator", Tag: t.tag, Sent: time.Now()}
		ctx, cancel := context.WithTimeout(t.s.ctx, 5*time.Second)
		call.Ranges, call.Err = t.s.client.Take(ctx, t.tag, 1)
		cancel()
		call.Ended, err = time.Now(), call.Err
		t.s.crowd.record(call)
		if err == nil {
			return
		}
	}
	t.s.violated("answers", t.tag, fmt.Sprintf("nothing forbids it, all are ready, and callers get no ID: %v", err))
}

// unreached is a limit that no run reaches.
const unreached = math.MaxInt64 / 4
