package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
)

// healthy is a cluster of three generators with embedded servers, in which any one machine may go.
func healthy() look {
	l := look{}
	for _, name := range []string{"a", "b", "c"} {
		l.nodes = append(l.nodes, admin.State{Node: "n" + name, Server: name, Host: "host-" + name, Embedded: true,
			Readiness: admin.Readiness{Ready: true, Segment: true, Snowflake: true}})
	}
	for _, name := range installationStreams {
		l.streams = append(l.streams, streamLook{name: name, info: &jetstream.StreamInfo{
			Config: jetstream.StreamConfig{Name: name, Replicas: 3}, State: jetstream.StreamState{LastSeq: 100},
			Cluster: &jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{
				{Name: "b", Current: true, Active: time.Second}, {Name: "c", Current: true, Active: 300 * time.Millisecond}}},
		}})
	}
	l.streams[3] = streamLook{name: l.streams[3].name} // no keys without opaque tags
	return l
}

// replica is a replica of KV_LEAF_TAGS.
func (l look) replica(i int) *jetstream.PeerInfo { return l.streams[1].info.Cluster.Replicas[i] }

func TestRedundancyLacks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*look)
		want   []string // what, name and why; none: redundant
		fix    bool     // a person must do something
	}{
		"healthy": {change: func(*look) {}},
		"no leader": {change: func(l *look) { l.streams[1].info.Cluster.Leader = "" },
			want: []string{"stream KV_LEAF_TAGS: it has no leader"}},
		"a leader that does not answer": {
			change: func(l *look) { l.streams[4] = streamLook{name: events.Stream, err: context.DeadlineExceeded} },
			want:   []string{"stream LEAF_EVENTS: its leader does not answer"}},
		"a replica that was just killed": {change: func(l *look) { l.replica(0).Active = replicaSilent + time.Millisecond },
			want: []string{"stream KV_LEAF_TAGS: replica b is silent"}},
		"a replica behind": {change: func(l *look) { l.replica(0).Current, l.replica(0).Lag = false, 41 },
			want: []string{"stream KV_LEAF_TAGS: replica b is 41 behind"}},
		"a replica that was never seen": {change: func(l *look) { *l.replica(0) = jetstream.PeerInfo{Name: "b", Pending: true} },
			want: []string{"stream KV_LEAF_TAGS: replica b has not joined yet"}},
		"one replica": {change: func(l *look) { l.streams[0].info.Config.Replicas, l.streams[0].info.Cluster = 1, nil },
			want: []string{"stream KV_LEAF: only one replica: its server may not go"}, fix: true},
		"no installation": {change: func(l *look) { l.streams[0].info = nil },
			want: []string{"stream KV_LEAF: it does not exist"}, fix: true},
		"no JetStream": {change: func(l *look) { l.streams[2].err = nats.ErrNoResponders },
			want: []string{"connection to JetStream: no server answers"}, fix: true},
		"a generator that misses something": {change: func(l *look) {
			l.nodes[1].Ready, l.nodes[1].Missing, l.nodes[1].Reasons = false, []string{"store"}, map[string]string{"store": "away"}
		}, want: []string{"generator nb: missing store: away"}},
		"one generator": {change: func(l *look) { l.nodes = l.nodes[:1] }, want: []string{
			"service segments: only the generator na is ready", "service snowflakes: only the generator na is ready"}, fix: true},
		"two generators at one NATS server": {change: func(l *look) { l.nodes = l.nodes[:2]; l.nodes[0].Server = "b" }, want: []string{
			"service segments: all generators that are ready (na, nb) use the NATS server b",
			"service snowflakes: all generators that are ready (na, nb) use the NATS server b"}, fix: true},
		"two of three at one NATS server": {change: func(l *look) { l.nodes[0].Server = "b" }},
		"no connection": {change: func(l *look) { l.nodes, l.err = nil, errors.New("cut") },
			want: []string{"connection to NATS: cut"}},
	} {
		l := healthy()
		c.change(&l)
		lacks := l.lacks(look{})
		var got []string
		for _, lack := range lacks {
			got = append(got, lack.What+" "+lack.Name+": "+lack.Why)
			if (lack.Fix != "") != c.fix {
				t.Errorf("%s: what to do: %q", name, lack.Fix)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestAwaitRedundant(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		at          func(after time.Duration, l *look)
		err         string
		least, most time.Duration
		waiting     string // a line of progress
	}{
		"healthy": {at: func(time.Duration, *look) {}, least: settleFor, most: settleFor + 2*time.Second},
		"killed a moment before, restarted after 20 s": {at: func(after time.Duration, l *look) {
			if after > replicaSilent && after < 20*time.Second {
				l.replica(1).Active = replicaSilent + time.Second
			}
		}, least: 20*time.Second + settleFor, most: 22*time.Second + settleFor,
			waiting: "waiting: stream KV_LEAF_TAGS: replica c is silent"},
		"one replica": {at: func(_ time.Duration, l *look) { l.streams[0].info.Config.Replicas = 1 },
			err: "waiting does not help", most: time.Second},
		"one generator": {at: func(_ time.Duration, l *look) { l.nodes = l.nodes[:1] },
			err: "start another generator", least: waitForHelp, most: waitForHelp + 2*time.Second,
			waiting: "waiting: services segments, snowflakes: only the generator na is ready"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var shown []string
			began := time.Now()
			w := redundantWait{most: 5 * time.Minute, help: waitForHelp}
			_, _, err := w.await(t.Context(), func(context.Context) (look, error) {
				time.Sleep(500 * time.Millisecond) // as long as States takes
				l := healthy()
				c.at(time.Since(began), &l)
				return l, nil
			}, func(lacks []lack) { shown = append(shown, lines(lacks, waiting)...) })
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", name, err, c.err)
			}
			if took := time.Since(began); took < c.least || took > c.most {
				t.Errorf("%s: it took %v, want %v to %v", name, took, c.least, c.most)
			}
			if c.waiting != "" && !slices.Contains(shown, c.waiting) {
				t.Errorf("%s: it showed %q", name, shown)
			}
		})
	}
}
