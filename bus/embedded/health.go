package embedded

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	// slowCheck is how long a check may take before Health reports it.
	slowCheck = 5 * time.Second
)

// fault is what one check found. The zero value: no fault.
type fault struct {
	err error
	// stopped: nats-server does not recover by itself. After a failed write it closes the
	// stream, or all of JetStream, until the process starts again.
	stopped bool
	full    bool // with stopped: the folder takes no writes now, so a restart does not help
	passing bool // the end of an election or a catch-up may end the fault
}

// check checks the health of nats-server. It may hang while the disk hangs.
func (s *Server) check() fault {
	why := s.log.failed.Load()
	if enabled := s.ns.JetStreamEnabled(); !enabled || why != nil {
		text := "JetStream stopped writing"
		if !enabled {
			text = "JetStream is disabled"
		}
		if why != nil {
			text += ": " + *why
		}
		// Without the store, the disk is gone: a restart would begin with an empty one.
		_, room := os.Stat(filepath.Join(s.dir, server.JetStreamStoreDir))
		if room == nil {
			room = CheckRoom(s.dir)
		}
		if room != nil {
			return fault{err: fmt.Errorf("%s; %w", text, room), stopped: true, full: true}
		}
		return fault{err: errors.New(text), stopped: true}
	}
	free, known := FreeRoom(s.dir)
	if !known {
		free = math.MaxInt64
	}
	if s.free.Store(free); free < minRoom {
		return fault{err: noRoom(s.dir)}
	}
	for _, e := range s.ns.Healthz(&server.HealthzOptions{Details: true}).Errors {
		switch {
		case e.Type == server.HealthzErrorStream && ours(e.Stream),
			e.Type == server.HealthzErrorConn, e.Type == server.HealthzErrorJetStream:
			return fault{err: errors.New(e.Error), passing: true}
		}
	}
	// A stream on this server that has no leader takes no writes. nats-server's own check does not
	// include that.
	info, err := s.ns.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return fault{err: err, passing: true}
	}
	for _, account := range info.AccountDetails {
		for _, stream := range account.Streams {
			if ours(stream.Name) && stream.Cluster != nil && stream.Cluster.Leader == "" {
				return fault{passing: true,
					err: fmt.Errorf("the stream %s has no leader: too few of its replicas are there", stream.Name)}
			}
		}
	}
	return fault{}
}

// ours reports whether a stream is one of Leafbus. Leafbus does not depend on other streams of
// the server.
func ours(stream string) bool {
	name := strings.TrimPrefix(stream, "KV_")
	return name == "LEAF" || strings.HasPrefix(name, "LEAF_")
}

// health is what the checks have found. A server is healthy only after a first check without a
// fault. Its methods are safe for concurrent use.
type health struct {
	restart chan struct{} // closed when only a restart helps

	mu    sync.Mutex
	err   error     // what is reported
	first time.Time // when the first check ended
	began time.Time // of the check that is under way; zero: none is
	ready bool      // a check has found no fault
	since time.Time // of the fault; zero: none
}

// begin notes that a check has begun.
func (h *health) begin(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = now
}

// end notes what a check has found.
func (h *health) end(now time.Time, found fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = time.Time{}
	if h.first.IsZero() {
		h.first = now
	}
	if h.since.IsZero() {
		h.since = now
	}
	switch {
	case errors.Is(h.err, ErrRestart): // this error stays
	case found.err == nil:
		h.ready, h.err, h.since = true, nil, time.Time{}
	case found.passing && h.ready && h.err == nil && now.Sub(h.since) < electionPatience:
	case found.stopped && !found.full && now.Sub(h.first) >= firstRestart:
		h.err = fmt.Errorf("%w; %w", found.err, ErrRestart)
		close(h.restart)
	default:
		h.err = found.err
	}
}

// at returns what is reported.
func (h *health) at(now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if took := now.Sub(h.began); !h.began.IsZero() && took > slowCheck {
		return fmt.Errorf("the NATS server has not answered a health check for %v: its disk may hang",
			took.Round(time.Second))
	}
	return h.err
}

// Health returns why the server cannot keep its part of the installation's state, or nil: its disk
// is full, JetStream is disabled or cannot write, or a stream of Leafbus has no leader, or has a
// replica on this server that is not current. After a start Health returns an error until the
// replicas are current for the first time. The server is checked each second. An error that matches
// [ErrRestart] stays until a restart.
func (s *Server) Health() error { return s.health.at(time.Now()) }

// AwaitRestart returns nil when the context is done. It returns an error that matches
// [ErrRestart] as soon as only a restart helps, and the folder takes writes again.
func (s *Server) AwaitRestart(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.health.restart:
		return s.Health()
	}
}

// startChecks checks once, so that Health is known when Start returns, and then until the server is
// closed.
func (s *Server) startChecks() {
	s.health.end(time.Now(), s.check())
	s.checking.Go(func() {
		for {
			select {
			case <-s.life.Done():
				return
			case <-time.After(checkEvery):
			}
			s.health.begin(time.Now())
			found := s.check()
			if s.life.Err() != nil { // it may have found a server that is being stopped
				return
			}
			s.health.end(time.Now(), found)
		}
	})
}
