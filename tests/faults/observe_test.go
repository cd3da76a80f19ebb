package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

func is(err error, reason bus.Reason) bool { return errors.Is(err, reason) }

// event is what rows need of the body of an event.
type event struct {
	subject                                            string
	Node, Tag, Action, Store, Error, Episode, Registry string
	Got, Seen, First, Last                             bus.ID
	Worker                                             *int64
	Left, Waiting, ReservedUntilMS, LastHeardMS        int64 `json:",omitempty"`
}

// events are those of the stream on a subject below leaf.events.
func (in *installation) events(subject string) (found []event) {
	in.Helper()
	stream, err := in.js.Stream(in.Context(), bus.EventStream)
	if err != nil {
		return nil // an election, or a stream that nobody needed yet
	}
	for seq := uint64(1); ; {
		msg, err := stream.GetMsg(in.Context(), seq, jetstream.WithGetMsgSubject("leaf.events."+subject))
		if err != nil {
			return found
		}
		e := event{subject: msg.Subject}
		if err := json.Unmarshal(msg.Data, &e); err != nil {
			in.Fatalf("%s: %v: %s", msg.Subject, err, msg.Data)
		}
		found = append(found, e)
		seq = msg.Sequence + 1
	}
}

// alerted waits for an alert, and returns the last one.
func (in *installation) alerted(subject string, matches ...func(event) bool) (e event) {
	in.Helper()
	testkit.Eventually(in.T, "the alert "+subject, func() bool {
		for _, found := range in.events("alert." + subject) {
			if !slices.ContainsFunc(matches, func(f func(event) bool) bool { return !f(found) }) {
				e = found
			}
		}
		return e.subject != ""
	})
	return e
}

// alertEnds waits for an alert of each of these subjects, and until each episode is over. A generator publishes one
// alert an episode.
func (in *installation) alertEnds(subject string) {
	in.Helper()
	parts := strings.SplitN(subject, ".", 3) // kind, what, key
	testkit.Eventually(in.T, "the alert "+subject+", and its end", func() bool {
		open := make(map[string]int) // by generator and key
		alerts := in.events("alert." + subject)
		for _, e := range alerts {
			open[e.Node+e.Tag]++
		}
		for _, e := range in.events("info." + parts[0] + ".recovered." + parts[2]) {
			if e.Episode == parts[1] {
				open[e.Node+e.Tag]--
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

// quiet demands that no alert came on a subject.
func (in *installation) quiet(subject string) {
	in.Helper()
	if found := in.events("alert." + subject); len(found) > 0 {
		in.Errorf("alerts %+v", found)
	}
}

// lacks waits until so many generators say that they lack something, with a reason that has this text.
func (in *installation) lacks(nodes int, what, text string) {
	in.Helper()
	testkit.Eventually(in.T, fmt.Sprintf("%d generators without %s: %s", nodes, what, text), func() bool {
		n := 0
		for _, s := range kit.States(in.nc) {
			if !s.Ready && slices.Contains(s.Missing, what) && strings.Contains(s.Reasons[what], text) {
				n++
			}
		}
		return n >= nodes
	})
}

// ready waits until so many generators lack nothing.
func (in *installation) ready(nodes int) {
	in.Helper()
	testkit.Eventually(in.T, fmt.Sprint(nodes, " generators that lack nothing"), func() bool {
		n := 0
		for _, s := range kit.States(in.nc) {
			if s.Ready {
				n++
			}
		}
		return n == nodes
	})
}

// held waits until so many generators have a worker, and returns them by node. No two have the same.
func (in *installation) held(nodes int) (workers map[string]int64) {
	in.Helper()
	testkit.Eventually(in.T, fmt.Sprint(nodes, " generators with a worker each"), func() bool {
		workers = make(map[string]int64)
		holders := make(map[int64]string)
		for _, s := range kit.States(in.nc) {
			if s.Worker != nil {
				workers[s.Node], holders[*s.Worker] = *s.Worker, s.Node
			}
		}
		return len(holders) == nodes && len(workers) == nodes
	})
	return workers
}

// snowflake takes one apart.
func snowflake(id int64) (ms, worker int64) {
	const epoch = 1288834974657
	return id>>22 + epoch, id >> 12 & 1023
}

// get asks a generator over HTTP.
func (in *installation) get(i int, path string) (status int, body string) {
	in.Helper()
	answer, err := http.Get(in.nodes[i].HTTP + path)
	kit.Must(in.T, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	kit.Must(in.T, err)
	return answer.StatusCode, string(text)
}
