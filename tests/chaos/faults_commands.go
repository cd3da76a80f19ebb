package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/tests/kit"
)

// commandFaults are commands that are rare, or wrong.
var commandFaults = []*fault{
	{
		name: "op-mistakes", about: "commands that must be refused, and change nothing", weight: 1, harms: byOperators,
		strike: makeMistakes,
	},
	{
		name: "op-release-worker", about: "a generator is gone for good, with its folder; its worker is released", weight: 1,
		harms: []string{harmsRules, harmsRegistry, harmsFolders, harmsClocks}, strike: releaseWorker,
	},
	{
		name: "pause-fast-clock", weight: 1, alone: true, strike: pauseAfterFastClock,
		about: "rules change by a clock that is ahead, LEAF_TAGS is set back, and the tag is paused, and gets a limit",
	},
}

// mistake is a command that must be refused.
type mistake struct {
	status int // 2: the command itself refuses it. 1: a generator does; the command may, too
	args   []string
}

func makeMistakes(s *strike) {
	t := s.subject(trend)
	t.create("--max-id", "1000", "--step", "100", "--limit", "1000000")
	defer t.remove()
	before, ok := s.record(t.tag)
	if !ok {
		return
	}
	wrong := s.write(fmt.Sprintf("tags:\n- {tag: %s, paused: true}\n- {tag: %s, setp: 7}\n", t.tag, order))
	mistakes := []mistake{
		{2, []string{"tag", "add"}},
		{2, []string{"tag", "set", t.tag}},
		{2, []string{"tag", "set", t.tag, "--max-id", "next"}},
		{2, []string{"tag", "set", t.tag, "--quota", "fast"}},
		{2, []string{"tag", "apply", "-f", wrong}},
		{2, []string{"workers", "release", "first", "--yes"}},
		{1, []string{"tag", "add", t.tag}},
		{1, []string{"tag", "add", t.tag, "--order", "strict"}},
		{1, []string{"tag", "add", "no name"}},
		{1, []string{"tag", "set", t.tag, "--max-id", "1"}},
		{1, []string{"tag", "set", t.tag, "--max-id", "900000"}}, // most IDs up to the limit would be lost
		{1, []string{"tag", "set", t.tag, "--limit", "214"}},
		{1, []string{"tag", "set", t.tag, "--step", "-1"}},
		{1, []string{"tag", "set", t.tag, "--limit", "9223372036854775807"}},
		{1, []string{"tag", "set", invoice, "--step", "5"}},
		{1, []string{"tag", "set", coupon, "--limit", "100"}},
		{1, []string{"tag", "rm", t.tag}}, // without --yes, and nobody to ask
		{1, []string{"tag", "rm", "ops.nothing", "--yes"}},
		{1, []string{"tag", "pause", "ops.nothing"}},
		{1, []string{"tag", "reveal", t.tag, "5"}},
		{1, []string{"workers", "release", "1023", "--yes"}},
	}
	s.Shuffle(len(mistakes), func(i, j int) { mistakes[i], mistakes[j] = mistakes[j], mistakes[i] })
	for _, m := range mistakes[:8] {
		if r := s.operator(m.args...); r.Status != 2 && r.Status != m.status {
			s.violated("command", "",
				fmt.Sprintf("leaf %q ended with exit status %d, not %d: %s", m.args, r.Status, m.status, r.Stderr))
		}
		s.last(0, time.Second)
	}
	if !s.settle() {
		return
	}
	if after, ok := s.record(t.tag); ok && text(after) != text(before) {
		s.violated("command", t.tag, fmt.Sprintf("commands that were refused changed %s to %s", text(before), text(after)))
	}
}

func text(r admin.TagRecord) string {
	data, err := json.Marshal(r)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// releaseWorker strikes no machine with an embedded NATS server: its folder has more than a generator.
func releaseWorker(s *strike) {
	m := s.joined()
	worker, ok := s.worker(m)
	if !ok {
		return // another fault took it
	}
	m.kill()
	kit.Must(s, os.RemoveAll(m.data))
	defer m.start()
	var r kit.Result
	// It is refused for 10 s after the last report.
	if !s.await(patience, time.Second, func() bool {
		r = s.operator("workers", "release", worker, "--yes")
		return r.Status == 0
	}) {
		s.violated("command", "", fmt.Sprintf("the worker of %s, which is gone, cannot be released: %s", m.name, r.Stderr))
	}
	s.last(0, 15*time.Second) // others may take it after 10 s
}

// worker is the number of the worker that a machine holds.
func (s *strike) worker(m *machine) (number string, ok bool) {
	var page admin.WorkersPage
	r := s.operator("workers", "--json")
	if r.Status != 0 || json.Unmarshal([]byte(r.Stdout), &page) != nil {
		return "", false
	}
	for _, w := range page.Workers {
		if w.Node == m.node() && w.Running {
			return fmt.Sprint(w.Worker), true
		}
	}
	return "", false
}

// pauseAfterFastClock restores a copy from before the changes. Generators that run remember them.
func pauseAfterFastClock(s *strike) {
	t := s.newSubject(trend)
	defer t.end()
	t.answers()
	older := s.backUpQuiet(streamTags)
	m := s.machine()
	m.setClock(10 * time.Minute)
	for i := range 8 { // m does some of them
		s.command(change{args: always("tag", "set", t.tag, "--outlast", fmt.Sprint(1+i, "h"))})
	}
	t.answers()
	m.setClock(0)
	s.removeStreams(streamTags)
	s.pause(time.Second)
	s.restore(older)
	t.answers()
	t.pauseTag()
	s.last(3*time.Second, 6*time.Second)
	t.resumeTag()
	r, ok := s.record(t.tag)
	if !ok {
		return
	}
	t.limit(int64(r.MaxID) + 1000)
	s.last(3*time.Second, 6*time.Second)
	t.unlimit()
	t.answers()
}
