package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/kvstore"
)

const (
	// leastReplicas is the least number of replicas of which a majority remains without any one.
	leastReplicas = 3
	// replicaSilent is how long a replica may be silent. Its leader hears it every second.
	replicaSilent = 3 * time.Second
	// leaderAnswers is how long the leader of a stream may take for an answer.
	leaderAnswers = 2 * time.Second
)

// look is what the installation looks like at one moment, from outside.
type look struct {
	nodes   []admin.State
	streams []streamLook
	cluster bool  // the NATS server is in one
	err     error // the generators could not be asked
}

// streamLook is what the leader of a stream says of it, or why there is no answer.
type streamLook struct {
	name string
	info *jetstream.StreamInfo // nil: there is no such stream, or err
	err  error
}

// lookAround asks all generators and JetStream at the same time.
func lookAround(ctx context.Context, c *admin.Client, js jetstream.JetStream) look {
	names := kvstore.Streams()
	l := look{streams: make([]streamLook, len(names)), cluster: js.Conn().ConnectedClusterName() != ""}
	var asked sync.WaitGroup
	for i, name := range names {
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
	case err == nil:
		return streamLook{name: name, info: stream.CachedInfo()}
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return streamLook{name: name}
	}
	return streamLook{name: name, err: denied(js.Conn(), err)}
}

// denied returns why a question to JetStream has no answer, if NATS denied to ask or to hear it,
// and else err. nats.go reports that only as the connection's last error.
func denied(nc *nats.Conn, err error) error {
	last := nc.LastError()
	if text := fmt.Sprint(last); errors.Is(last, nats.ErrPermissionViolation) &&
		(strings.Contains(text, ".API.") || strings.Contains(text, "Subscription to")) {
		return last
	}
	return err
}

// stream returns what is known of a stream; nil: it does not exist, or cannot be read.
func (l look) stream(name string) *jetstream.StreamInfo {
	for _, s := range l.streams {
		if s.name == name {
			return s.info
		}
	}
	return nil
}

// findings returns what is wrong with JetStream and the generators. before is the look before this
// one.
func (l look) findings(before look) []finding {
	found := l.streamFindings(before)
	if l.err != nil {
		return append(found, finding{Check: "generators", State: stateProblem, Found: l.err.Error(), stops: true,
			never: errors.Is(l.err, nats.ErrPermissionViolation)})
	}
	return slices.Concat(found, l.causes(), l.alone())
}

// streamFindings groups what is wrong with the streams by what it is: a server that is away leaves
// all of them.
func (l look) streamFindings(before look) (all []finding) {
	names := make(map[string]string) // by what is wrong with these streams
	add := func(f finding, name string) {
		if names[f.Found] += ", " + name; strings.Count(names[f.Found], ",") == 1 {
			f.Check, f.stops = "streams", true
			all = append(all, f)
		}
	}
	for i, s := range l.streams {
		switch {
		case s.err != nil:
			f := jetStreamFinding(s.err)
			f.Found = "it cannot be read: " + f.Found
			add(f, s.name)
		case s.info == nil && i == 0:
			add(finding{Found: "it does not exist", Fix: "start the generators: the first one makes it"}, s.name)
		case s.info == nil:
		case s.info.Config.Replicas < leastReplicas:
			f := finding{Found: fmt.Sprintf("kept by %d of the three servers that it needs", s.info.Config.Replicas),
				Fix: "run at least three NATS servers with JetStream as one cluster (docs/operate.md). If they are one: " +
					"nats stream edit NAME --replicas 3, for each stream", never: true}
			if l.cluster {
				f.State = stateWarning
			}
			add(f, s.name)
		default:
			if lacks := replicaLacks(s.info, before.stream(s.name)); len(lacks) > 0 {
				add(finding{State: stateProblem, Found: strings.Join(lacks, ", "), Fix: "start the NATS servers that are away " +
					"(more than half must run), make room on their disks, or wait until each copy is complete"}, s.name)
			}
		}
	}
	for i, f := range all {
		all[i].Found = strings.TrimPrefix(names[f.Found], ", ") + ": " + f.Found
	}
	return all
}

// jetStreamFinding says why JetStream does not answer, and what to do.
func jetStreamFinding(err error) finding {
	f := finding{State: stateProblem, Found: err.Error()}
	api, _ := errors.AsType[*jetstream.APIError](err)
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		f.never, f.Fix = true, "run leaf doctor as the user of the generators "+
			"(SECURITY.md#who-may-do-what-over-nats), or --wait as one who may publish to $JS.API.STREAM.INFO.*"
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount),
		errors.Is(err, nats.ErrNoResponders):
		f.Found = "no server answers for JetStream: " + f.Found
		f.Fix = "enable JetStream on the servers and for this account, start the servers that have it, and check --js-domain"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), api != nil && api.Code == 503:
		f.Found = "JetStream has no leader: " + f.Found
		f.Fix = "start the NATS servers that are away: more than half of those with JetStream must run " +
			"(nats server report jetstream)"
	}
	return f
}

// replicaLacks returns what is wrong with the replicas of a stream. before is what was known of it
// a moment ago; nil: nothing.
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
		case r.Offline, r.Active > replicaSilent:
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
