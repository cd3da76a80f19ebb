package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/chaos/programs"
	"github.com/leafbus/leafbus/tests/kit"
)

// byOperators is what no other fault may harm while operators change tags: an operator does one thing at a time, and
// what was set may not be lost.
var byOperators = []string{harmsRules, harmsRows}

// operatorFaults are what operators do.
var operatorFaults = []*fault{
	{
		name: "op-pause", about: "a tag is paused and resumed", weight: 2, harms: byOperators,
		strike: func(s *strike) {
			t := s.newSubject(s.anyOrder())
			defer t.end()
			for range 1 + s.IntN(3) {
				s.last(0, 2*time.Second)
				t.pauseTag()
				s.last(time.Second, 4*time.Second)
				t.resumeTag()
			}
			t.answers()
		},
	},
	{
		name: "op-create", about: "two tags are made, with rules from the beginning", weight: 2, harms: byOperators,
		strike: createTags,
	},
	{
		name: "op-limit", about: "a limit is set, reached, lowered, raised and removed; and a quota", weight: 2,
		harms: byOperators, strike: limitTag,
	},
	{
		name: "op-change", about: "max_id of tags that are in use is moved up, and their steps change", weight: 2,
		harms: byOperators, strike: changeTags,
	},
	{
		// Embedded servers only: a joined one that is behind may answer the generator that returns. The leader of the
		// tags is spared, else they have none when the generator asks for what it missed.
		name: "op-frozen", about: "max_id is moved up while a generator stands still", weight: 1, servers: "embedded",
		harms: byOperators,
		strike: func(s *strike) {
			s.leader()
			m := s.machine()
			for range 2 + s.IntN(3) {
				t := s.anySubject()
				r, ok := s.record(t.tag) // in time: while the generator stands still, it may be the one that is asked
				if !ok {
					return
				}
				thawed := s.froze(m, s.between(6*time.Second, 9*time.Second))
				t.floor(int64(r.MaxID) + 20_000 + s.Int64N(5000))
				<-thawed
				s.last(0, time.Second)
			}
		},
	},
	{
		name: "op-advance", about: "tags that are in use are moved above all that is reserved", weight: 1, harms: byOperators,
		strike: func(s *strike) {
			for range 1 + s.IntN(3) {
				s.anySubject().advance()
				s.last(0, 2*time.Second)
			}
		},
	},
	{
		name: "op-delete", about: "a tag is deleted and made again; in another order that is a conflict", weight: 2,
		harms: byOperators, strike: deleteTag,
	},
	{
		name: "op-apply", about: "a file makes and changes tags; an export changes nothing", weight: 2, alone: true,
		strike: applyTags,
	},
	{
		name: "apply-behind", about: "a tag is paused, and resumed by a file, while a NATS server is behind",
		weight: 1, servers: "joined", alone: true, strike: applyBehind,
	},
	{
		name: "op-sql", about: "rows of leaf_alloc are inserted, moved up, deleted and inserted again", weight: 2,
		store: "mysql", harms: append([]string{harmsDatabase}, byOperators...), strike: rowsOfTag,
	},
	{
		name: "op-reveal", about: "opaque IDs have the numbers that they had, each its own", weight: 1,
		harms: byOperators, strike: revealIDs,
	},
}

func createTags(s *strike) {
	first, limit := 1+s.Int64N(1e6), 1e6+s.Int64N(1e12)
	a := s.newSubject([]string{trend, strict}[s.IntN(2)], "--max-id", fmt.Sprint(first), "--limit", fmt.Sprint(limit))
	defer a.end()
	s.judge.Floor(a.tag, first, s.began) // nobody had an ID of it before
	s.judge.Limit(a.tag, limit, s.began)
	b := s.newSubject(s.anyOrder(), "--quota", "1000/s", "--burst", "2000", "--description", s.name)
	defer b.end()
	a.answers()
	b.answers()
	s.last(0, 3*time.Second)
}

// anySubject is a tag with many callers, which exists all the time.
func (s *strike) anySubject() *subject {
	return []*subject{{s, order, trend}, {s, stock, trend}, {s, invoice, strict}, {s, coupon, opaque}}[s.IntN(4)]
}

func limitTag(s *strike) {
	t := s.newSubject([]string{trend, trend, strict}[s.IntN(3)])
	defer t.end()
	for range 1 + s.IntN(3) {
		r, ok := s.record(t.tag)
		if !ok {
			return
		}
		limit := int64(r.MaxID) + s.Int64N(3000)
		t.limit(limit)
		s.last(time.Second, 3*time.Second)
		if s.IntN(2) == 0 {
			t.limit(limit - s.Int64N(limit))
			s.last(0, 2*time.Second)
		}
		t.unlimit()
		if s.IntN(2) == 0 {
			t.limit(unreached)
		}
		t.answers()
	}
	s.command(change{args: always("tag", "set", t.tag, "--quota", "200/s", "--burst", "400")})
	s.last(time.Second, 3*time.Second)
	s.command(change{args: always("tag", "set", t.tag, "--quota", "none")})
	t.answers()
}

func changeTags(s *strike) {
	for range 2 + s.IntN(4) {
		if t := s.anySubject(); t.order == strict || s.IntN(3) > 0 { // a strict tag has no step
			if r, ok := s.record(t.tag); ok {
				t.floor(int64(r.MaxID) + 1 + s.Int64N(5000))
			}
		} else {
			step := fmt.Sprint(10 + s.IntN(200))
			s.command(change{args: always("tag", "set", t.tag, "--step", step, "--description", s.name)})
		}
		s.last(0, 2*time.Second)
	}
	s.command(change{args: always("tag", "set", order, "--step", "200")})
	s.command(change{args: always("tag", "set", stock, "--step", "20")})
}

func deleteTag(s *strike) {
	first := 1 + s.Int64N(1e12)
	order := s.anyOrder()
	t := s.newSubject(order, "--max-id", fmt.Sprint(first))
	defer t.end()
	if order != opaque {
		s.judge.Floor(t.tag, first, s.began) // nobody had an ID of it before
	}
	for range 1 + s.IntN(3) {
		s.last(0, 2*time.Second)
		t.remove()
		s.last(300*time.Millisecond, 2*time.Second)
		other := []string{"tag", "add", t.tag, "--order", "strict"}
		if order == strict {
			other = other[:3]
		}
		if r := s.operator(other...); r.Status == 0 {
			s.violated("command", t.tag, fmt.Sprintf("a tag was %s, and leaf %s made it again", order, strings.Join(other, " ")))
		}
		t.create("--max-id", fmt.Sprint(1+s.Int64N(2*first)))
		t.answers()
	}
}

func applyTags(s *strike) {
	a := s.subject(trend)
	b := s.subject(strict)
	first, limit := 1+s.Int64N(1e12), int64(1e15)
	apply := func(demand func(kit.Result, time.Time), format string, args ...any) {
		s.command(change{args: always("tag", "apply", "-f", s.write(fmt.Sprintf(format, args...))), demand: demand})
	}
	apply(nil, "tags:\n- {tag: %s, step: 50, max_id: %d, limit: %d}\n- {tag: %s, order: strict}\n",
		a.tag, first, limit, b.tag)
	s.crowd.add(a.tag, false)
	s.crowd.add(b.tag, true)
	defer b.end()
	defer a.end()
	s.judge.Floor(a.tag, first, s.began) // nobody had an ID of it before
	s.judge.Limit(a.tag, limit, s.began)
	for range 1 + s.IntN(2) {
		s.last(0, 2*time.Second)
		apply(func(_ kit.Result, at time.Time) {
			s.judge.Pause(a.tag, at)
			s.judge.Pause(b.tag, at)
		}, "tags:\n- {tag: %s, paused: true}\n- {tag: %s, paused: true}\n", a.tag, b.tag)
		s.last(time.Second, 3*time.Second)
		now := time.Now()
		s.judge.Resume(a.tag, now)
		s.judge.Resume(b.tag, now)
		apply(nil, "tags:\n- {tag: %s, paused: false}\n- {tag: %s, paused: false, description: resumed}\n", a.tag, b.tag)
	}
	a.answers()
	b.answers()
	reapply(s)
}

// applyBehind lets the copy of one server lag. leaf tag apply asks for the record first: only the leader may answer.
func applyBehind(s *strike) {
	t := s.newSubject(trend)
	defer t.end()
	s.leader() // it is spared
	slow := s.server()
	slow.control.Disk(programs.Slow(time.Second))
	file := s.write(fmt.Sprintf("tags:\n- {tag: %s, paused: false, description: resumed}\n", t.tag))
	for range 8 {
		s.insist("tag", "pause", t.tag)
		s.insist("tag", "apply", "-f", file)
		s.insist("tag", "set", t.tag, "--description", "paused")
		if r := s.operator("tag", "show", t.tag, "--json"); strings.Contains(r.Stdout, `"paused":true`) {
			break
		}
	}
	slow.control.Disk(programs.Fine)
	t.answers()
}

// reapply demands that the tags as they are, exported, change nothing.
func reapply(s *strike) {
	file := filepath.Join(s.dir, "export.yaml")
	s.command(change{args: always("tag", "export"), demand: func(r kit.Result, _ time.Time) {
		kit.Must(s, os.WriteFile(file, []byte(r.Stdout), 0o600))
	}})
	s.command(change{args: always("tag", "apply", "-f", file, "--json"), demand: func(r kit.Result, _ time.Time) {
		var done struct {
			Tags      []json.RawMessage
			Unchanged int
		}
		if err := json.Unmarshal([]byte(r.Stdout), &done); err != nil || len(done.Tags) > 0 || done.Unchanged == 0 {
			s.violated("command", "", "an export was applied, and changed something: "+r.Stdout)
		}
	}})
}

// rowsOfTag is what an operator does with SQL. No fault harms the database meanwhile.
func rowsOfTag(s *strike) {
	t := s.subject(trend)
	sql := func(format string, args ...any) {
		statement := fmt.Sprintf(format, args...)
		s.note("SQL: %s", statement)
		s.sql(statement)
	}
	insert := fmt.Sprintf("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('%s', 1, 50)", t.tag)
	sql("%s", insert)
	s.crowd.add(t.tag, false)
	defer t.end()
	for range 1 + s.IntN(2) {
		t.answers()
		sql("UPDATE leaf_alloc SET max_id = max_id + %d WHERE biz_tag = '%s'", 1+s.IntN(1e6), t.tag)
		s.last(0, 2*time.Second)
		sql("DELETE FROM leaf_alloc WHERE biz_tag = '%s'", t.tag)
		for _, m := range s.machines {
			t.forgotten(m)
		}
		s.judge.Delete(t.tag, time.Now())
		s.last(300*time.Millisecond, 2*time.Second)
		s.judge.Create(t.tag, time.Now())
		sql("%s", insert)
	}
	t.answers()
}

// forgotten waits until a machine has noticed that a row is gone. Until then it may hand out what it has in memory.
func (t *subject) forgotten(m *machine) {
	for {
		if answer, err := looking.Get("http://" + m.http + "/api/segment/get/" + t.tag); err == nil {
			answer.Body.Close()
			if answer.Header.Get("Leaf-Error-Reason") == string(bus.UnknownTag) {
				return
			}
		}
		t.s.pause(100 * time.Millisecond)
	}
}

func revealIDs(s *strike) {
	for range 2 + s.IntN(3) {
		ids := s.someIDs(s.IntN)
		if len(ids) == 0 {
			s.pause(time.Second)
			continue
		}
		ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second)
		answer, err := s.admin.RevealIDs(ctx, coupon, ids...)
		cancel()
		if err != nil {
			s.note("reveal: %v", err)
			if !s.settle() {
				return
			}
			continue
		}
		numbers := make(map[bus.ID]bus.ID)
		for i, id := range ids {
			numbers[id] = answer[i]
		}
		if r, ok := s.record(coupon); ok {
			s.compare(ids, numbers, r.MaxID)
		}
		s.last(0, 3*time.Second)
	}
}
