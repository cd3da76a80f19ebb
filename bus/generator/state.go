package generator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/bus/internal/outbox"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

var (
	errCutOff   = errors.New("the connection to NATS is lost")
	errSilent   = errors.New("NATS does not answer")
	errStarting = errors.New("the generator does not answer requests yet")
)

const (
	busiestTags = 20  // how many tags with the highest rates the state lists
	endingTags  = 10  // how many of those that run out of IDs first
	maxNamed    = 100 // how many tags a request for buffers may name
)

// state says how the generator is. It only reads what the other parts own. Its methods are safe for
// concurrent use.
type state struct {
	*base
	made     time.Time
	host     string // for people; empty if the machine has no name
	embedded bool   // the NATS server runs in this process

	subscriptions        *subscriptions
	flakes               *flakes
	checks               *checks
	outbox               *outbox.Outbox
	findings             *findings
	counts               *counts
	segments, snowflakes *service
}

// stats is the micro.StatsHandler of the service leaf.
func (s *state) stats(e *micro.Endpoint) any {
	if e.Name != wire.StatsEndpoint {
		return json.RawMessage{} // not JSON, so micro omits data; nil would be "data":null
	}
	return s.whole()
}

// readiness says which parts are missing without which the generator is not ready.
func (s *state) readiness() admin.Readiness {
	r := admin.Readiness{
		Segment: s.segments.canServe(), Snowflake: s.snowflakes.canServe(),
		Missing: []string{}, Reasons: map[string]string{},
	}
	miss := func(part string, why error) {
		if why != nil {
			r.Missing = append(r.Missing, part)
			r.Reasons[part] = why.Error()
		}
	}
	miss("bus", s.busErr())
	miss("nats", s.cfg.NATSErr())
	miss("store", cmp.Or(s.storeErr(), s.segments.healthy(), s.alloc.Failing().Store))
	miss("keys", s.checks.err(keysLost))
	if why := s.snowflakes.healthy(); errors.Is(why, snowflake.ErrClockBackwards) {
		miss("clock", why)
	} else {
		miss("worker", why)
	}
	if s.phase.draining.Load() {
		miss("draining", allocator.ErrClosed)
	}
	r.Ready = len(r.Missing) == 0
	return r
}

// busErr says why no request reaches this generator; nil: they do, or it has left the bus on
// purpose.
func (s *state) busErr() error {
	switch {
	case s.phase.draining.Load():
		return nil
	case !s.cfg.Conn.IsConnected():
		return errCutOff
	case !s.phase.serving.Load():
		return errStarting
	case !s.link.hears():
		return errSilent
	}
	return s.subscriptions.err()
}

// storeErr says why the tags' store is unavailable; nil: as far as is known, it is available.
func (s *state) storeErr() error {
	if s.cfg.Numbers != nil {
		if err := s.cfg.Numbers.Err(); err != nil {
			return err
		}
	}
	if !s.phase.opened.Load() {
		return nil // what is missing is said by the preparation
	}
	return s.cfg.Records.Err()
}

// whole returns all that is said of the generator.
func (s *state) whole() admin.State {
	now := time.Now()
	failing, totals, flakes := s.alloc.Failing(), s.alloc.Totals(endingTags), s.flakes.State()
	lost, nodes := s.lost(now)
	is := admin.State{
		Node: s.cfg.Node, Version: wire.Version(), Address: s.cfg.Address(),
		Server: s.cfg.Conn.ConnectedServerName(), Host: s.host, Embedded: s.embedded, HTTP: s.cfg.Describe["http"],
		Started: s.made.UTC().Truncate(time.Millisecond), Clock: admin.Clock{UnixMS: s.cfg.Snowflake.Clock().Wall},
		Readiness: s.readiness(),
		Counts: admin.Counts{
			Requests: s.counts.requests.Load(), IDs: s.counts.ids.Load(), Borrowed: s.counts.borrowed.Load(),
			Overloads: s.counts.overloads.Load(), Errors: s.counts.refusals(),
			Waiting: s.alloc.Waiting() + int64(flakes.Waiting) + s.segments.held.Load() + s.snowflakes.held.Load(),
			Tags:    s.alloc.Tags(), States: totals.States, Left: totals.Left, Failing: failing.Tags, Lost: lost,
			EventsQueued: s.outbox.Waiting(), EventsDropped: s.outbox.Dropped(),
			StoreErrors: s.alloc.Failures(),
		},
		Busiest: []admin.Buffer{}, Lost: nodes, Findings: s.findings.list(totals.Lasts, lost, nodes),
	}
	if !math.IsInf(totals.Lasts, 1) { // infinity is no JSON
		is.FailingLasts = &totals.Lasts
	}
	for _, e := range totals.Ending {
		is.Ending = append(is.Ending, admin.EndingTag{Tag: e.Tag, Left: e.Left, Rate: tenths(e.Rate)})
	}
	if flakes.Worker >= 0 && s.flakes.noWorker() == nil {
		is.Worker, is.ReservedUntil, is.RegistryAway = &flakes.Worker, flakes.ReservedUntil, flakes.RegistryErr != nil
	}
	if offset, ok := s.group.offset(now); ok {
		is.Clock.OffsetMS = &offset
	}
	for _, v := range s.alloc.Busiest(busiestTags) {
		b := buffer(v)
		b.Error, b.Rules = "", admin.TagRules{} // the state must stay small; leaf.admin.buffers has them
		is.Busiest = append(is.Busiest, b)
	}
	return is
}

// lost returns how many peers are lost, and the latest of them.
func (s *state) lost(now time.Time) (count int, latest []admin.LostNode) {
	count, lost := s.group.lost(now)
	for _, p := range lost {
		latest = append(latest, admin.LostNode{Node: p.Node, LastHeardMS: p.heard.UnixMilli(),
			SilentMS: max(now.Sub(p.heard).Milliseconds(), 0), UntilMS: p.until().UnixMilli()})
	}
	return count, latest
}

// buffers answers leaf.admin.buffers.
func (s *state) buffers(_ context.Context, req admin.BuffersRequest) (admin.BuffersPage, error) {
	page := admin.BuffersPage{Node: s.cfg.Node, Buffers: []admin.Buffer{}}
	limit, err := pageLimit(req.Limit)
	if err == nil && len(req.Tags) > maxNamed {
		err = badRequest("%d tags are named, more than %d", len(req.Tags), maxNamed)
	}
	if err != nil {
		return page, err
	}
	views := s.alloc.Named(req.Tags)
	if len(req.Tags) == 0 {
		views = s.alloc.Views(pageQuery(req.PageRequest, limit))
	}
	for _, v := range views {
		page.Buffers = append(page.Buffers, buffer(v))
	}
	if n := fit(s.cfg.Conn, page.Buffers, limit); n < len(page.Buffers) {
		page.Buffers = page.Buffers[:n]
		page.Next = page.Buffers[n-1].Tag
	}
	return page, nil
}

func buffer(v allocator.View) admin.Buffer {
	b := admin.Buffer{
		Tag: v.Tag, State: v.State, Step: v.Step, Segments: []admin.Segment{}, Left: v.Left, Taken: v.Taken,
		Waiting: v.Waiting, Rate: v.Rate, Refilled: v.Refilled, Error: v.Error, Rules: rules(v.Rules),
	}
	if v.Order == allocator.Strict {
		b.Order = idspace.OrderStrict
	} else if !math.IsInf(v.Lasts, 1) { // infinity is no JSON
		lasts := tenths(v.Lasts)
		b.Lasts = &lasts
	}
	for _, s := range v.Segments {
		b.Segments = append(b.Segments, admin.Segment{
			First: bus.ID(s.First), Last: bus.ID(s.Last), Next: bus.ID(s.Next)})
	}
	return b
}

func tenths(x float64) float64 { return math.Round(10*x) / 10 }
