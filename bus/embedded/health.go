package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// ErrRestart is matched by the errors of [Server.Health] and [Server.AwaitRestart] when
// JetStream has stopped for good and its folder takes writes again: only a restart of the
// process brings JetStream back.
var ErrRestart = errors.New("only a restart of this process brings JetStream back")

const (
	// electionPatience is longer than an election in a cluster, which takes 4 to 9 s. For
	// this time a missing leader or a replica that is behind is not reported.
	electionPatience = 10 * time.Second
	// firstRestart is the least age of a server that asks for a restart: a write that fails
	// again after each start must not end the process many times a minute.
	firstRestart = 5 * time.Second

	checkEvery = time.Second
	// checkEarly is the pause while a server that has just started is not ready yet.
	checkEarly = 100 * time.Millisecond
	// slowCheck is how long a check may take before Health reports it.
	slowCheck = 5 * time.Second
)

// fault is what one health check found. The zero value: no fault.
type fault struct {
	why string
	// stopped: nats-server does not recover by itself. After a failed write it closes the
	// stream, or all of JetStream, until the process starts again.
	stopped bool
	// room is why the folder takes no writes now; only set if stopped.
	room error
	// passing: the end of an election or a catch-up may end the fault.
	passing bool
}

// judge decides what to report after each health check. The zero value is ready to use. A
// server is healthy only after a first check without a fault.
type judge struct {
	began   time.Time // first check
	ready   bool      // a check has found no fault
	stopped bool      // as the last check found
	healthy bool      // no fault is reported
	since   time.Time // of a fault that is not reported yet; zero: none
}

// next returns what to report after a check at now; nil: the server is healthy.
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

// pause returns the time until the next check.
func (j *judge) pause() time.Duration {
	if j.ready || j.stopped {
		return checkEvery
	}
	return checkEarly
}

// error returns the fault as it is reported.
func (f fault) error(mayRestart bool) error {
	switch {
	case f.room != nil:
		return fmt.Errorf("%s; %w", f.why, f.room)
	case f.stopped && mayRestart:
		return fmt.Errorf("%s; %w", f.why, ErrRestart)
	}
	return errors.New(f.why)
}

// check checks the health of nats-server. It may hang while the disk hangs.
func (s *Server) check() fault {
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

// noRoom returns an error if a restart would not find the store, or could not write to it.
func (s *Server) noRoom() error {
	if _, err := os.Stat(filepath.Join(s.dir, server.JetStreamStoreDir)); err != nil {
		return err // the disk is gone: a restart would begin with an empty store
	}
	return CheckRoom(s.dir)
}

// leaderless reports a stream of Leafbus on this server that has no leader, so it takes no
// writes. nats-server's own health check does not include that.
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

// ours reports whether a stream is one of Leafbus. Leafbus does not depend on other streams of
// the server.
func ours(stream string) bool {
	name := strings.TrimPrefix(stream, "KV_")
	return name == "LEAF" || strings.HasPrefix(name, "LEAF_")
}

// watch keeps the result of the last health check. Its methods are safe for concurrent use.
type watch struct {
	mu      sync.Mutex
	err     error
	began   time.Time // of the check that is under way; zero: none is
	restart chan struct{}
}

// begin notes that a check has begun.
func (w *watch) begin(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = now
}

// end notes the result of a check.
func (w *watch) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = time.Time{}
	if errors.Is(w.err, ErrRestart) {
		return // this error stays until a restart
	}
	w.err = err
	if errors.Is(err, ErrRestart) {
		close(w.restart)
	}
}

// health returns the result of the last check.
func (w *watch) health(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if took := now.Sub(w.began); !w.began.IsZero() && took > slowCheck {
		return fmt.Errorf("the NATS server has not answered a health check for %v: its disk may hang", took.Round(time.Second))
	}
	return w.err
}

// Health returns why the server cannot keep its part of the installation's state, or nil: its disk
// is full, JetStream is disabled or cannot write, or a stream of Leafbus has no leader, or has a
// replica on this server that is not current. After a start Health returns an error until the
// replicas are current for the first time. The server is checked each second. An error that matches
// [ErrRestart] stays until a restart.
func (s *Server) Health() error { return s.watch.health(time.Now()) }

// AwaitRestart returns nil when the context is done. It returns an error that matches
// [ErrRestart] as soon as only a restart helps, and the folder takes writes again.
func (s *Server) AwaitRestart(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.watch.restart:
		return s.Health()
	}
}

// startChecks checks once, so that Health is known when Start returns, and then repeatedly
// until the context is done.
func (s *Server) startChecks(ctx context.Context) {
	var j judge
	s.watch.end(j.next(time.Now(), s.check()))
	s.checking.Go(func() {
		checks := time.NewTimer(j.pause())
		defer checks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-checks.C:
			}
			s.watch.begin(time.Now())
			found := s.check()
			if ctx.Err() != nil { // it may have found a server that is being stopped
				return
			}
			s.watch.end(j.next(time.Now(), found))
			checks.Reset(j.pause())
		}
	})
}
