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
	"github.com/leafbus/leafbus/bus/kvstore"
)

// healthy is a cluster of three generators with embedded servers, in which any one machine may stop.
func healthy() look {
	l := look{cluster: true}
	for _, name := range []string{"a", "b", "c"} {
		l.nodes = append(l.nodes, admin.State{Node: "n" + name, Server: name, Host: "host-" + name, Embedded: true,
			Readiness: admin.Readiness{Ready: true, Segment: true, Snowflake: true}})
	}
	for _, name := range kvstore.Streams() {
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

// TestLook: what is wrong is one line a cause, with the right advice. Some of it only keeps a machine from stopping.
func TestLook(t *testing.T) {
	t.Parallel()
	unavailable := &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "JetStream system temporarily unavailable"}
	none := func(l *look, err error) {
		for i := range l.streams {
			l.streams[i] = streamLook{name: l.streams[i].name, err: err}
		}
	}
	find := func(l *look, node int, f admin.Finding) {
		f.Message, f.Do = "away", "bring it back"
		l.nodes[node].Findings = append(l.nodes[node].Findings, f)
	}
	const all = "KV_LEAF, KV_LEAF_TAGS, KV_LEAF_WORKERS, KV_LEAF_KEYS, LEAF_EVENTS: it cannot be read: "
	for name, c := range map[string]struct {
		change func(*look)
		want   []string // state, check, what was found, > what to do; ! it keeps all machines
	}{
		"healthy": {change: func(*look) {}},
		"two of three servers are down": {func(l *look) { none(l, unavailable) },
			[]string{"!problem streams " + all + "JetStream has no leader: " + unavailable.Error() + " > start the NATS servers that are away"}},
		"a leader that does not answer": {func(l *look) { l.streams[4] = streamLook{name: events.Stream, err: context.DeadlineExceeded} },
			[]string{"!problem streams LEAF_EVENTS: it cannot be read: JetStream has no leader: context deadline exceeded > start the NATS servers that are away"}},
		"no JetStream": {func(l *look) { none(l, nats.ErrNoResponders) },
			[]string{"!problem streams " + all + "no server answers for JetStream: nats: no responders available for request > enable JetStream"}},
		"no leader": {func(l *look) { l.streams[1].info.Cluster.Leader = "" },
			[]string{"!problem streams KV_LEAF_TAGS: it has no leader > start the NATS server"}},
		"a replica that was just killed": {func(l *look) { l.replica(0).Active = replicaSilent + time.Millisecond },
			[]string{"!problem streams KV_LEAF_TAGS: replica b is silent > start the NATS server"}},
		"a replica behind": {func(l *look) { l.replica(0).Current, l.replica(0).Lag = false, 41 },
			[]string{"!problem streams KV_LEAF_TAGS: replica b is 41 behind > start the NATS server"}},
		"a replica that was never seen": {func(l *look) { *l.replica(0) = jetstream.PeerInfo{Name: "b", Pending: true} },
			[]string{"!problem streams KV_LEAF_TAGS: replica b has not joined yet > start the NATS server"}},
		"one replica": {func(l *look) { l.streams[0].info.Config.Replicas, l.streams[0].info.Cluster = 1, nil },
			[]string{"!warning streams KV_LEAF: kept by 1 of the three servers that it needs > run at least three NATS servers"}},
		"one replica, as generators say": {func(l *look) {
			l.streams[0].info.Config.Replicas, l.streams[0].info.Cluster = 1, nil
			find(l, 0, admin.Finding{Kind: "replicas.few", Severity: admin.Warning})
		}, []string{"!warning streams KV_LEAF: kept by 1 of the three servers that it needs > run at least three NATS servers"}},
		"no installation": {func(l *look) { l.streams[0].info = nil },
			[]string{"!streams KV_LEAF: it does not exist > start the generators"}},
		"ZooKeeper is dead": {func(l *look) {
			for i := range l.nodes {
				find(l, i, admin.Finding{Kind: "registry.unavailable", Severity: admin.Problem})
			}
		}, []string{"problem registry.unavailable na, nb, nc: away > bring it back; see docs/runbook.md#registryunavailable"}},
		"a tag without IDs": {func(l *look) {
			find(l, 1, admin.Finding{Kind: "segment.starved", Severity: admin.Critical, Keys: []string{"a", "b"}, Count: 9})
			find(l, 2, admin.Finding{Kind: "clock.off", Severity: admin.Warning})
		}, []string{"problem segment.starved nb about a, b and 7 more: away > bring it back; see docs/runbook.md#segmentstarved",
			"warning clock.off nc: away > bring it back; see docs/runbook.md#clockoff"}},
		"a generator that lacks something": {func(l *look) {
			l.nodes[1].Ready, l.nodes[1].Missing, l.nodes[1].Reasons = false, []string{"store"}, map[string]string{"store": "away"}
		}, []string{"!problem generators nb lacks its store: away > docs/runbook.md"}},
		"one that says why": {func(l *look) {
			l.nodes[1].Ready, l.nodes[1].Missing, l.nodes[1].Reasons = false, []string{"store"}, map[string]string{"store": "away"}
			find(l, 1, admin.Finding{Kind: "database.unavailable", Severity: admin.Problem})
		}, []string{"problem database.unavailable nb: away > bring it back; see docs/runbook.md#databaseunavailable",
			"!generators nb lacks its store: away > docs/runbook.md"}},
		"nobody": {func(l *look) { l.nodes = nil }, []string{"!problem generators no generator answers > start some"}},
		"one generator": {func(l *look) { l.nodes = l.nodes[:1] }, []string{
			"!generators generators that can answer with segments: 1 (na), at 1 NATS servers > start another",
			"!generators generators that can answer with snowflakes: 1 (na), at 1 NATS servers > start another"}},
		"two generators at one NATS server": {func(l *look) { l.nodes = l.nodes[:2]; l.nodes[0].Server = "b" }, []string{
			"!generators generators that can answer with segments: 2 (na, nb), at 1 NATS servers > start another",
			"!generators generators that can answer with snowflakes: 2 (na, nb), at 1 NATS servers > start another"}},
		"one without snowflakes":          {change: func(l *look) { l.nodes[0].Snowflake = false }},
		"two of three at one NATS server": {change: func(l *look) { l.nodes[0].Server = "b" }},
		"no connection":                   {func(l *look) { l.nodes, l.err = nil, errors.New("cut") }, []string{"!problem generators cut > "}},
	} {
		l := healthy()
		c.change(&l)
		var got []string
		for i, f := range l.findings(look{}) {
			fix := f.Fix
			if i < len(c.want) { // the first words are enough
				_, want, _ := strings.Cut(c.want[i], " > ")
				fix = f.Fix[:min(len(f.Fix), len(want))]
			}
			text := strings.TrimSpace(f.State+" "+f.Check) + " " + f.Found + " > " + fix
			if f.stops {
				text = "!" + text
			}
			got = append(got, text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q, want\n%q", name, got, c.want)
		}
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	const longest = 5 * time.Minute
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
			waiting: "KV_LEAF_TAGS: replica c is silent"},
		"one replica": {at: func(_ time.Duration, l *look) { l.streams[0].info.Config.Replicas = 1 },
			err: "waiting does not help", most: time.Second},
		"one generator": {at: func(_ time.Duration, l *look) { l.nodes = l.nodes[:1] },
			err: "start another generator", least: longest - 2*time.Second, most: longest + time.Second,
			waiting: "generators that can answer with segments: 1 (na), at 1 NATS servers"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var shown []string
			began := time.Now()
			_, _, err := await(t.Context(), longest, func(context.Context) (look, error) {
				time.Sleep(500 * time.Millisecond) // as long as States takes
				l := healthy()
				c.at(time.Since(began), &l)
				return l, nil
			}, func(found []finding) {
				for _, f := range found {
					shown = append(shown, f.Found)
				}
			})
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
