package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
)

// healthy is a cluster of three generators with embedded servers, in which any one machine may go.
func healthy() look {
	l := look{}
	for _, name := range []string{"a", "b", "c"} {
		l.nodes = append(l.nodes, bus.State{Node: "n" + name, Server: name, Host: "host-" + name, Embedded: true,
			Readiness: bus.Readiness{Ready: true, Segment: true, Snowflake: true}})
	}
	for _, name := range installationStreams {
		l.streams = append(l.streams, streamLook{name: name, info: &jetstream.StreamInfo{
			Config: jetstream.StreamConfig{Name: name, Replicas: 3}, State: jetstream.StreamState{LastSeq: 100},
			Cluster: &jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{
				{Name: "b", Current: true, Active: time.Second}, {Name: "c", Current: true, Active: 300 * time.Millisecond}}},
		}})
	}
	l.streams[3] = streamLook{name: l.streams[3].name} // no ledger without MySQL
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
			change: func(l *look) { l.streams[4] = streamLook{name: bus.EventStream, err: context.DeadlineExceeded} },
			want:   []string{"stream LEAF_EVENTS: its leader does not answer"}},
		"an offline replica": {change: func(l *look) { l.replica(1).Offline = true },
			want: []string{"stream KV_LEAF_TAGS: replica c is offline"}},
		"a replica that was just killed": {change: func(l *look) { l.replica(0).Active = replicaSilent + time.Millisecond },
			want: []string{"stream KV_LEAF_TAGS: replica b is silent"}},
		"a replica behind": {change: func(l *look) { l.replica(0).Current, l.replica(0).Lag = false, 41 },
			want: []string{"stream KV_LEAF_TAGS: replica b is 41 behind"}},
		"a replica that is not current": {change: func(l *look) { l.replica(0).Current = false },
			want: []string{"stream KV_LEAF_TAGS: replica b is not current"}},
		"a replica that was never seen": {change: func(l *look) { *l.replica(0) = jetstream.PeerInfo{Name: "b", Pending: true} },
			want: []string{"stream KV_LEAF_TAGS: replica b has not joined yet"}},
		"a replica that has no server": {
			change: func(l *look) { l.streams[1].info.Cluster.Replicas = l.streams[1].info.Cluster.Replicas[:1] },
			want:   []string{"stream KV_LEAF_TAGS: it has 2 of 3 replicas"}},
		"one replica": {change: func(l *look) { l.streams[0].info.Config.Replicas, l.streams[0].info.Cluster = 1, nil },
			want: []string{"stream KV_LEAF: only one replica: its server may not go"}, fix: true},
		"two replicas": {change: func(l *look) { l.streams[0].info.Config.Replicas = 2 },
			want: []string{"stream KV_LEAF: only two replicas: neither server may go"}, fix: true},
		"no installation": {change: func(l *look) { l.streams[0].info = nil },
			want: []string{"stream KV_LEAF: it does not exist"}, fix: true},
		"no JetStream": {change: func(l *look) { l.streams[2].err = nats.ErrNoResponders },
			want: []string{"connection to JetStream: no server answers"}, fix: true},
		"a generator that misses something": {change: func(l *look) {
			l.nodes[1].Ready, l.nodes[1].Missing, l.nodes[1].Reasons = false, []string{"store"}, map[string]string{"store": "away"}
		}, want: []string{"generator nb: missing store: away"}},
		"one generator for snowflakes": {change: func(l *look) { l.nodes[0].Snowflake, l.nodes[2].Snowflake = false, false },
			want: []string{"service snowflakes: only the generator nb is ready"}, fix: true},
		"one generator": {change: func(l *look) { l.nodes = l.nodes[:1] }, want: []string{
			"service segments: only the generator na is ready", "service snowflakes: only the generator na is ready"}, fix: true},
		"no generator": {change: func(l *look) { l.nodes = nil }, want: []string{
			"service segments: no generator is ready", "service snowflakes: no generator is ready"}, fix: true},
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

// The last writes of a busy stream are on their way to a replica that keeps up.
func TestRedundancyOfABusyStream(t *testing.T) {
	t.Parallel()
	before, now := healthy(), healthy()
	now.streams[1].info.State.LastSeq += 50
	now.replica(0).Current, now.replica(0).Lag = false, 50
	if lacks := now.lacks(before); len(lacks) > 0 {
		t.Errorf("50 behind, after 50 writes since the last look: %v", lacks)
	}
	now.replica(0).Lag = 51
	if lacks := now.lacks(before); len(lacks) != 1 {
		t.Errorf("51 behind, after 50 writes since the last look: %v", lacks)
	}
}

// awaited is what await returned, after how long.
type awaited struct {
	err   error
	took  time.Duration
	shown []string
}

// awaitRedundant waits with virtual time. at returns what a look finds so long after the start.
func awaitRedundant(t *testing.T, w redundantWait, at func(time.Duration) look) (a awaited) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, _, a.err = w.await(t.Context(), func(context.Context) (look, error) {
			time.Sleep(500 * time.Millisecond) // as long as States takes
			return at(time.Since(began)), nil
		}, func(lacks []lack) { a.shown = append(a.shown, lines(lacks, waiting)...) })
		a.took = time.Since(began)
	})
	return a
}

func TestAwaitRedundant(t *testing.T) {
	t.Parallel()
	w := redundantWait{most: 5 * time.Minute, help: waitForHelp}
	silent := func(l look) look {
		for i, s := range l.streams {
			if s.info != nil {
				l.streams[i].info.Cluster.Replicas[1].Active = replicaSilent + time.Second
			}
		}
		return l
	}
	one := func(l look) look { l.nodes = l.nodes[:1]; return l }
	for name, c := range map[string]struct {
		at      func(time.Duration) look
		wait    redundantWait
		err     string
		least   time.Duration
		most    time.Duration
		waiting string // a line of progress
	}{
		"healthy": {at: func(time.Duration) look { return healthy() }, wait: w, least: settleFor, most: settleFor + 2*time.Second},
		"killed a moment before, restarted after 20 s": {at: func(d time.Duration) look {
			if d > replicaSilent && d < 20*time.Second {
				return silent(healthy())
			}
			return healthy()
		}, wait: w, least: 20*time.Second + settleFor, most: 22*time.Second + settleFor,
			waiting: "waiting: streams KV_LEAF, KV_LEAF_TAGS, KV_LEAF_WORKERS, KV_LEAF_KEYS, LEAF_EVENTS: replica c is silent"},
		"a generator leaves, and two remain": {at: func(d time.Duration) look {
			l := healthy()
			if d > 4*time.Second {
				l.nodes = l.nodes[:2]
				for i := range l.nodes {
					l.nodes[i].Embedded = false
				}
			}
			return l
		}, wait: w, least: 4*time.Second + settleFor, most: 6*time.Second + settleFor},
		"an embedded server whose generator does not answer yet": {at: func(d time.Duration) look {
			l := healthy()
			if d < 14*time.Second { // its empty disk counts as current
				l.nodes = l.nodes[:2]
			} else if d < 20*time.Second {
				l.nodes[2].Ready, l.nodes[2].Missing, l.nodes[2].Reasons = false, []string{"nats"}, map[string]string{"nats": "not current"}
			}
			return l
		}, wait: w, least: 20*time.Second + settleFor, most: 22*time.Second + settleFor, waiting: "waiting: generator nc: missing nats: not current"},
		"never current": {at: func(time.Duration) look { return silent(healthy()) }, wait: w, err: "after 5m0s the installation is not redundant",
			least: w.most, most: w.most + time.Second},
		"one replica": {at: func(time.Duration) look {
			l := healthy()
			l.streams[0].info.Config.Replicas = 1
			return l
		}, wait: w, err: "waiting does not help", most: time.Second},
		"one generator": {at: func(time.Duration) look { return one(healthy()) }, wait: w, err: "start another generator",
			least: waitForHelp, most: waitForHelp + 2*time.Second, waiting: "waiting: services segments, snowflakes: only the generator na is ready"},
		"one generator, and a machine that starts for a minute": {at: func(d time.Duration) look {
			if d < time.Minute {
				return one(healthy())
			}
			return healthy()
		}, wait: redundantWait{w.most, w.most}, least: time.Minute + settleFor, most: time.Minute + 2*time.Second + settleFor},
		"a wait that is too short": {at: func(time.Duration) look { return healthy() }, wait: redundantWait{time.Second, time.Second},
			err: "give a longer --wait", most: 2 * time.Second},
	} {
		a := awaitRedundant(t, c.wait, c.at)
		if (a.err == nil) != (c.err == "") || a.err != nil && !strings.Contains(a.err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", name, a.err, c.err)
		}
		if a.took < c.least || a.took > c.most {
			t.Errorf("%s: it took %v, want %v to %v", name, a.took, c.least, c.most)
		}
		if c.waiting != "" && !slices.Contains(a.shown, c.waiting) {
			t.Errorf("%s: it showed %q", name, a.shown)
		}
	}
}

// One host name may be one machine, so it is said.
func TestRedundancyNotes(t *testing.T) {
	t.Parallel()
	l := healthy()
	if notes := l.notes(); len(notes) > 0 {
		t.Errorf("three hosts: %q", notes)
	}
	for i := range l.nodes {
		l.nodes[i].Host = "h"
	}
	if notes := l.notes(); len(notes) != 1 || !strings.Contains(notes[0], "(na, nb, nc) run on a host named h") {
		t.Errorf("one host: %q", notes)
	}
}

func TestWaitRedundantRefuses(t *testing.T) {
	cleanEnv(t)
	nowhere := freeAddress(t)
	for _, args := range [][]string{{"--wait", "5m"}, {"--wait-redundant", "--wait", "0"}, {"--wait-redundant", "--wait", "-1s"}, {"--wait-redundant", "x"}} {
		if status, stdout, stderr := leaf(t, append([]string{"nodes", "-s", nowhere}, args...)...); status != exitUsage || stdout != "" {
			t.Errorf("%q: status %d: %s%s", args, status, stdout, stderr)
		}
	}
	t.Setenv("LEAF_WAIT_REDUNDANT", "true") // counts only on the command line
	if status, _, stderr := leaf(t, "nodes", "-s", nowhere); status != exitNobody || !strings.Contains(stderr, "no NATS server") {
		t.Errorf("status %d: %s", status, stderr)
	}
	if offered, _ := completed(t, "nodes", "--wai"); fmt.Sprint(offered) !=
		"[--wait\tlongest wait of --wait-redundant --wait-redundant\twait until any one machine may stop without an interruption]" {
		t.Errorf("offered %q", offered)
	}
}
