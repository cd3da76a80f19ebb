package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// ErrRestart is matched by the errors of [Server.Health] and [Server.AwaitRestart] when
// JetStream has stopped for good and its folder takes writes again: only a restart of the
// process brings JetStream back.
var ErrRestart = errors.New("only a restart of this process brings JetStream back")

const (
	// electionPatience is longer than an election in a cluster, which takes 4 to 9 s. Until
	// then a missing leader or a replica that is behind is no fault.
	electionPatience = 10 * time.Second
	// firstRestart is the least age of a server that asks for a restart: a write that fails
	// again after each start must not end the process many times a minute.
	firstRestart = 5 * time.Second

	lookEvery = time.Second
	// lookEarly is the pause while a server that has just started is not ready yet.
	lookEarly = 100 * time.Millisecond
)

// fault is what one look at the server found. The zero value: nothing.
type fault struct {
	why string
	// stopped: nats-server does not take it back by itself. It closes what a failed write
	// belonged to, or all of JetStream, until the process starts again.
	stopped bool
	// room is why the folder takes no writes now; known only if stopped.
	room error
	// passing: it is one of those that an election or a catch-up ends.
	passing bool
}

// judge turns the faults of one look after the other into what is reported. The zero value is
// ready: a server is not healthy before a look has found nothing.
type judge struct {
	began   time.Time // first look
	ready   bool      // a look has found nothing
	stopped bool      // the last look found this
	healthy bool      // what is reported
	since   time.Time // of a fault that is not reported yet; zero: none
}

// next returns what is to be reported after a look at now; nil: the server is healthy.
func (j *judge) next(now time.Time, found fault) error {
	if j.began.IsZero() {
		j.began = now
	}
	j.stopped = found.stopped
	switch {
	case found.why == "":
		j.ready, j.healthy, j.since = true, true, time.Time{}
		return nil
	case j.since.IsZero():
		j.since = now
	}
	if found.passing && j.healthy && now.Sub(j.since) < electionPatience {
		return nil
	}
	j.healthy = false
	return found.error(now.Sub(j.began) >= firstRestart)
}

// pause returns the time until the next look.
func (j *judge) pause() time.Duration {
	if j.ready || j.stopped {
		return lookEvery
	}
	return lookEarly
}

// error returns what is reported of a fault.
func (f fault) error(mayRestart bool) error {
	switch {
	case f.room != nil:
		return fmt.Errorf("%s; %w", f.why, f.room)
	case f.stopped && mayRestart:
		return fmt.Errorf("%s; %w", f.why, ErrRestart)
	}
	return errors.New(f.why)
}

// look asks nats-server how it is. It may hang as long as the disk does.
func (s *Server) look() fault {
	why := s.log.failed.Load()
	switch {
	case !s.ns.JetStreamEnabled():
		text := "JetStream is disabled"
		if why != nil {
			text += ": " + *why
		}
		return fault{why: text, stopped: true, room: s.noRoom()}
	case why != nil:
		return fault{why: "JetStream stopped writing: " + *why, stopped: true, room: s.noRoom()}
	}
	if why := lowRoom(s.dir); why != "" {
		return fault{why: why}
	}
	for _, e := range s.ns.Healthz(&server.HealthzOptions{Details: true}).Errors {
		switch e.Type {
		case server.HealthzErrorStream:
			if ours(e.Stream) {
				return fault{why: e.Error, passing: true}
			}
		case server.HealthzErrorConn, server.HealthzErrorJetStream:
			return fault{why: e.Error, passing: true}
		}
	}
	return fault{why: s.leaderless(), passing: true}
}

// noRoom says why a restart would not find the store, or could not write to it.
func (s *Server) noRoom() error {
	if _, err := os.Stat(filepath.Join(s.dir, server.JetStreamStoreDir)); err != nil {
		return err // the disk itself has gone: a restart would begin with an empty store
	}
	return CheckRoom(s.dir)
}

// leaderless says which stream of Leafbus on this server has no leader, and so takes no
// writes: nats-server's health check does not count that.
func (s *Server) leaderless() string {
	info, err := s.ns.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return err.Error()
	}
	for _, account := range info.AccountDetails {
		for _, stream := range account.Streams {
			if ours(stream.Name) && stream.Cluster != nil && stream.Cluster.Leader == "" {
				return "the stream " + stream.Name + " has no leader: too few of its replicas are there"
			}
		}
	}
	return ""
}

// ours reports whether a stream is one of Leafbus. Others may be on the same server, and
// Leafbus does not depend on them.
func ours(stream string) bool {
	name := strings.TrimPrefix(stream, "KV_")
	return name == "LEAF" || strings.HasPrefix(name, "LEAF_")
}
