package faults

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// event is what rows need of the body of an event.
type event struct {
	Node, Tag, Action, Store, Episode string
	Got, Seen                         bus.ID
	Worker                            *int64
}

// events are those of the stream on a subject below leaf.events.
func (in *installation) events(subject string) (found []event) {
	in.Helper()
	stream, err := in.js.Stream(in.Context(), events.Stream)
	if err != nil {
		return nil // an election, or a stream that nobody needed yet
	}
	for seq := uint64(1); ; {
		msg, err := stream.GetMsg(in.Context(), seq, jetstream.WithGetMsgSubject("leaf.events."+subject))
		if err != nil {
			return found
		}
		var e event
		if err := json.Unmarshal(msg.Data, &e); err != nil {
			in.Fatalf("%s: %v: %s", msg.Subject, err, msg.Data)
		}
		found, seq = append(found, e), msg.Sequence+1
	}
}

// alerted waits for an alert of a generator, or of any if node is empty.
func (in *installation) alerted(subject, node string) (e event) {
	in.Helper()
	testkit.Eventually(in.T, "the alert "+subject+" of "+node, func() bool {
		found := in.events("alert." + subject)
		i := slices.IndexFunc(found, func(e event) bool { return node == "" || e.Node == node })
		if i >= 0 {
			e = found[i]
		}
		return i >= 0
	})
	return e
}

// alertEnds waits for an alert, and until each of its episodes is over.
func (in *installation) alertEnds(subject string) {
	in.Helper()
	parts := strings.SplitN(subject, ".", 3) // kind, what, key
	testkit.Eventually(in.T, "the alert "+subject+", and its end", func() bool {
		open := make(map[string]int) // by generator and tag
		alerts := in.events("alert." + subject)
		for _, e := range alerts {
			open[e.Node+" "+e.Tag]++
		}
		for _, e := range in.events("info." + parts[0] + ".recovered." + parts[2]) {
			if e.Episode == parts[1] {
				open[e.Node+" "+e.Tag]--
			}
		}
		for _, n := range open {
			if n != 0 {
				return false
			}
		}
		return len(alerts) > 0
	})
}

// oneAlert demands that no generator published a second alert in one episode.
func (in *installation) oneAlert(subject string) {
	in.Helper()
	count := make(map[string]int)
	for _, e := range in.events("alert." + subject) {
		if count[e.Node]++; count[e.Node] > 1 {
			in.Errorf("%s published %d alerts %s of one episode", e.Node, count[e.Node], subject)
		}
	}
}

// await waits until what all generators say of themselves is right.
func (in *installation) await(what string, right func([]kit.State) bool) {
	in.Helper()
	testkit.Eventually(in.T, what, func() bool { return right(kit.States(in.nc)) })
}

// lacking waits until so many generators say that they lack something, with a reason that has this text.
func (in *installation) lacking(nodes int, what, text string) {
	in.Helper()
	in.await(fmt.Sprintf("%d generators without %s: %s", nodes, what, text), func(all []kit.State) bool {
		return nodes == len(slices.DeleteFunc(all, func(s kit.State) bool {
			return s.Ready || !slices.Contains(s.Missing, what) || !strings.Contains(s.Reasons[what], text)
		}))
	})
}

// ready waits until so many generators lack nothing.
func (in *installation) ready(nodes int) {
	in.Helper()
	in.await(fmt.Sprint(nodes, " generators that lack nothing"), func(all []kit.State) bool {
		return nodes == len(slices.DeleteFunc(all, func(s kit.State) bool { return !s.Ready }))
	})
}

// held waits until so many generators have a worker, each another one, and returns them by node.
func (in *installation) held(nodes int) (workers map[string]int64) {
	in.Helper()
	in.await(fmt.Sprint(nodes, " generators with a worker each"), func(all []kit.State) bool {
		workers = make(map[string]int64)
		different := make(map[int64]bool)
		for _, s := range all {
			if s.Worker != nil {
				workers[s.Node], different[*s.Worker] = *s.Worker, true
			}
		}
		return len(workers) == nodes && len(different) == nodes
	})
	return workers
}
