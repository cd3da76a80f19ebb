package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
)

const (
	// leastReplicas is the least number of replicas of which a majority remains without any one.
	leastReplicas = 3
	// replicaSilent is how long a replica may be silent. Its leader hears it every second.
	replicaSilent = 3 * time.Second
	// leaderAnswers is how long the leader of a stream may take for an answer.
	leaderAnswers = 2 * time.Second
)

// installationStreams hold the state of Leafbus. An installation with MySQL or ZooKeeper may lack some of them.
var installationStreams = []string{
	"KV_" + bus.BucketInstallation, "KV_" + bus.BucketTags, "KV_" + bus.BucketWorkers,
	"KV_" + bus.BucketKeys, events.Stream,
}

// look is what the installation looks like at one moment.
type look struct {
	nodes   []admin.State
	streams []streamLook
	err     error // the generators could not be asked
}

// streamLook is what the leader of a stream says of it, or why there is no answer.
type streamLook struct {
	name string
	info *jetstream.StreamInfo // nil: there is no such stream, or err
	err  error
}

// lack is one thing that keeps a machine from going.
type lack struct {
	What string `json:"what"` // stream, generator, service or connection
	Name string `json:"name"` // for example KV_LEAF_TAGS
	Why  string `json:"why"`
	// Fix says what to do. It is empty if waiting may be enough.
	Fix string `json:"fix,omitempty"`
	// never: it is so by configuration, so waiting does not help.
	never bool
}

// lines returns a line for each reason, with all that lack for that reason.
func lines(lacks []lack, format func(what string, l lack) string) (lines []string) {
	for i, l := range lacks {
		if same(lacks[:i], l) != nil {
			continue // it is in the line of an earlier one
		}
		what := l.What + " " + l.Name
		if all := same(lacks, l); len(all) > 1 {
			what = l.What + "s " + strings.Join(all, ", ")
		}
		lines = append(lines, format(what, l))
	}
	return lines
}

// same returns the names of those that lack the same.
func same(lacks []lack, as lack) (names []string) {
	for _, l := range lacks {
		if l.What == as.What && l.Why == as.Why {
			names = append(names, l.Name)
		}
	}
	return names
}

// lookAround asks all generators and JetStream at the same time.
func lookAround(ctx context.Context, c *admin.Client, js jetstream.JetStream) look {
	l := look{streams: make([]streamLook, len(installationStreams))}
	var asked sync.WaitGroup
	for i, name := range installationStreams {
		asked.Go(func() { l.streams[i] = lookAt(ctx, js, name) })
	}
	l.nodes, l.err = c.States(ctx)
	asked.Wait()
	return l
}

func lookAt(ctx context.Context, js jetstream.JetStream, name string) streamLook {
	ctx, cancel := context.WithTimeout(ctx, leaderAnswers)
	defer cancel()
	stream, err := js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return streamLook{name: name}
	case err != nil:
		return streamLook{name: name, err: cmp.Or(infoDenied(js.Conn(), name), err)}
	}
	return streamLook{name: name, info: stream.CachedInfo()}
}

// infoDenied returns an error if NATS denied to ask for a stream, or to hear the answer. nats.go reports that only as
// the connection's last error, which may be about another stream that was asked for meanwhile.
func infoDenied(nc *nats.Conn, stream string) error {
	last := nc.LastError()
	if !errors.Is(last, nats.ErrPermissionViolation) {
		return nil
	}
	switch text := last.Error(); {
	case strings.Contains(text, ".STREAM.INFO."):
		return fmt.Errorf("%w for publish to STREAM.INFO.%s of the JetStream API", nats.ErrPermissionViolation, stream)
	case strings.Contains(text, "Subscription to"):
		return last
	}
	return nil
}

// denied returns an error if the user of NATS may not ask.
func (l look) denied() error {
	if errors.Is(l.err, nats.ErrPermissionViolation) {
		return l.err
	}
	for _, s := range l.streams {
		if errors.Is(s.err, nats.ErrPermissionViolation) {
			return fmt.Errorf("this user of NATS may not ask for the streams of Leafbus: %w: let it publish to "+
				"$JS.API.STREAM.INFO.* and hear the answers, or give another user", s.err)
		}
	}
	return nil
}

// lacks returns what is missing for any one machine to go. before is the look before this one.
func (l look) lacks(before look) []lack {
	return slices.Concat(l.connectionLacks(), l.streamLacks(before), l.nodeLacks())
}

func (l look) connectionLacks() []lack {
	switch {
	case l.err != nil:
		return []lack{{What: "connection", Name: "to NATS", Why: l.err.Error()}}
	case l.noJetStream():
		return []lack{{What: "connection", Name: "to JetStream", Why: "no server answers",
			Fix: "give the NATS and the account of the generators (--server, --user and the like, --js-domain)"}}
	}
	return nil
}

// noJetStream reports whether nobody answers for JetStream.
func (l look) noJetStream() bool {
	return slices.ContainsFunc(l.streams, func(s streamLook) bool {
		return errors.Is(s.err, nats.ErrNoResponders) || errors.Is(s.err, jetstream.ErrJetStreamNotEnabled) ||
			errors.Is(s.err, jetstream.ErrJetStreamNotEnabledForAccount)
	})
}

func (l look) streamLacks(before look) (lacks []lack) {
	if l.noJetStream() {
		return nil
	}
	for i, s := range l.streams {
		add := func(why, fix string, never bool) {
			lacks = append(lacks, lack{What: "stream", Name: s.name, Why: why, Fix: fix, never: never})
		}
		switch {
		case errors.Is(s.err, context.DeadlineExceeded):
			add("its leader does not answer", "", false)
		case s.err != nil:
			add(s.err.Error(), "", false)
		case s.info == nil && i == 0:
			add("it does not exist", "start the generators: the first one makes it", false)
		case s.info == nil:
		case s.info.Config.Replicas < leastReplicas:
			why := "only one replica: its server may not go"
			if s.info.Config.Replicas == 2 {
				why = "only two replicas: neither server may go"
			}
			add(why, "run at least three NATS servers "+
				"with JetStream as one cluster (docs/cluster.md). If they are one: nats stream edit "+s.name+" --replicas 3, and "+
				"so for each stream", true)
		default:
			var earlier *jetstream.StreamInfo
			if i < len(before.streams) {
				earlier = before.streams[i].info
			}
			for _, why := range replicaLacks(s.info, earlier) {
				add(why, "", false)
			}
		}
	}
	return lacks
}

// replicaLacks returns what is wrong with the replicas of a stream. before is what was known of it a moment ago; nil:
// nothing.
func replicaLacks(info, before *jetstream.StreamInfo) (lacks []string) {
	cluster := info.Cluster
	if cluster == nil || cluster.Leader == "" {
		return []string{"it has no leader"}
	}
	// The last writes are on their way to a replica that is current.
	underWay := uint64(0)
	if before != nil && before.State.LastSeq > 0 && info.State.LastSeq > before.State.LastSeq {
		underWay = info.State.LastSeq - before.State.LastSeq
	}
	for _, r := range cluster.Replicas {
		switch {
		case r.Offline:
			lacks = append(lacks, fmt.Sprintf("replica %s is offline", r.Name))
		case r.Active > replicaSilent:
			lacks = append(lacks, fmt.Sprintf("replica %s is silent", r.Name))
		case r.Pending:
			lacks = append(lacks, fmt.Sprintf("replica %s has not joined yet", r.Name))
		case r.Lag > underWay:
			lacks = append(lacks, fmt.Sprintf("replica %s is %d behind", r.Name, r.Lag))
		case !r.Current && r.Lag == 0:
			lacks = append(lacks, fmt.Sprintf("replica %s is not current", r.Name))
		}
	}
	if there := len(cluster.Replicas) + 1; there < info.Config.Replicas {
		lacks = append(lacks, fmt.Sprintf("it has %d of %d replicas", there, info.Config.Replicas))
	}
	return lacks
}

// nodeLacks returns what is wrong with the generators.
func (l look) nodeLacks() (lacks []lack) {
	if l.err != nil {
		return nil // it is not known which generators run
	}
	for _, s := range l.nodes {
		for _, missing := range s.Missing {
			lacks = append(lacks, lack{What: "generator", Name: s.Node, Why: "missing " + missing + ": " + s.Reasons[missing]})
		}
	}
	for _, service := range services {
		if why, fix := alone(l.able(service.can)); why != "" {
			lacks = append(lacks, lack{What: "service", Name: service.name, Why: why, Fix: fix})
		}
	}
	return lacks
}

var services = []struct {
	name string
	can  func(admin.State) bool
}{
	{"segments", func(s admin.State) bool { return s.Segment }},
	{"snowflakes", func(s admin.State) bool { return s.Snowflake }},
}

// able returns the generators that can answer a service.
func (l look) able(can func(admin.State) bool) []admin.State {
	return slices.DeleteFunc(slices.Clone(l.nodes), func(s admin.State) bool { return !can(s) })
}

// alone returns why a service of these generators depends on one machine, and what to do; empty: it does not.
func alone(able []admin.State) (why, fix string) {
	switch len(able) {
	case 0:
		return "no generator is ready", "start generators on at least two machines"
	case 1:
		return "only the generator " + able[0].Node + " is ready", "start another generator on another machine"
	}
	if server := common(able, natsServer); server != "" {
		return fmt.Sprintf("all generators that are ready (%s) use the NATS server %s", names(able), server),
			fixSpread
	}
	return "", ""
}

// fixSpread is what to do if all generators use one NATS server.
const fixSpread = "in a cluster, generators move to other servers within a minute; " +
	"if not, give each the addresses of several servers (--server), and make sure that it can reach them"

// natsServer names the NATS server of a generator. Older versions do not report its name.
func natsServer(s admin.State) string { return cmp.Or(s.Server, s.Address) }

// common returns what all generators have in common; empty: nothing.
func common(nodes []admin.State, of func(admin.State) string) string {
	for _, s := range nodes {
		if of(s) != of(nodes[0]) {
			return ""
		}
	}
	return of(nodes[0])
}

func names(nodes []admin.State) string {
	all := make([]string, len(nodes))
	for i, s := range nodes {
		all[i] = s.Node
	}
	return strings.Join(all, ", ")
}

// notes returns what may be wrong, but cannot be known.
func (l look) notes() (notes []string) {
	for _, service := range services {
		able := l.able(service.can)
		if len(able) == 0 {
			continue
		}
		host := common(able, func(s admin.State) string { return s.Host })
		note := fmt.Sprintf("all generators that are ready (%s) run on a host named %s: if that is one machine, it may not "+
			"go", names(able), host)
		if host != "" && !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	return notes
}

// settles returns how long nothing may change until the installation counts as redundant. A server with an empty disk
// may count as current before it has copied the state. An embedded one is current when its generator says so. If no
// generator answers there, it may be starting.
func (l look) settles() time.Duration {
	answers := make(map[string]bool)
	embedded := false
	for _, s := range l.nodes {
		answers[s.Server] = true
		embedded = embedded || s.Embedded
	}
	for _, s := range l.streams {
		if !embedded || s.info == nil || s.info.Cluster == nil {
			continue
		}
		if !answers[s.info.Cluster.Leader] ||
			slices.ContainsFunc(s.info.Cluster.Replicas, func(r *jetstream.PeerInfo) bool { return !answers[r.Name] }) {
			return startsFor
		}
	}
	return settleFor
}

// shape is what must stay the same until the installation counts as redundant: who is there, and who leads.
func (l look) shape() string {
	var b strings.Builder
	for _, s := range l.nodes {
		fmt.Fprintf(&b, "%s %v %s\n", s.Node, s.Started, natsServer(s))
	}
	for _, s := range l.streams {
		fmt.Fprintf(&b, "%s", s.name)
		if s.info != nil && s.info.Cluster != nil {
			fmt.Fprintf(&b, " %s", s.info.Cluster.Leader)
			for _, r := range s.info.Cluster.Replicas {
				fmt.Fprintf(&b, " %s", r.Name)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
