package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

// The request and reply of leaf.admin.workers.list.
type (
	// WorkersRequest asks for a page of the workers: up to Limit entries (at most
	// and by default 1,000) with a number from From on.
	WorkersRequest struct {
		From  int64 `json:"from,omitempty"`
		Limit int   `json:"limit,omitempty"`
	}
	// WorkersPage is the reply.
	WorkersPage struct {
		Registry string   `json:"registry"`
		Workers  []Worker `json:"workers"`
		Next     int64    `json:"next,omitempty"` // From of the next page; 0: this was the last
	}
	// Worker says who holds a worker ID.
	Worker struct {
		Worker        int64     `json:"worker"`
		Node          string    `json:"node"`
		Running       bool      `json:"running"` // a generator says that it holds it now
		Acquired      time.Time `json:"acquired"`
		Reported      time.Time `json:"reported"`       // the holder's last word
		ReservedUntil time.Time `json:"reserved_until"` // from then on another may take it
	}
)

func (g *Generator) workersList(ctx context.Context, req WorkersRequest) (WorkersPage, error) {
	limit, err := PageRequest{Limit: req.Limit}.check()
	if err != nil {
		return WorkersPage{}, err
	}
	if g.identity.Load() == nil { // asking may make the bucket
		return WorkersPage{}, fmt.Errorf("%w: %w", snowflake.ErrNoWorker, errNotJoined)
	}
	entries, err := g.cfg.Workers(ctx)
	if err != nil {
		return WorkersPage{}, fmt.Errorf("%w: the registry: %w", snowflake.ErrNoWorker, err)
	}
	page := WorkersPage{Registry: g.cfg.RegistryKind, Workers: []Worker{}}
	now := time.Now()
	for _, e := range entries {
		if e.Worker < req.From {
			continue
		}
		page.Workers = append(page.Workers, Worker{
			Worker: e.Worker, Node: e.Node, Running: e.Worker == g.flakes.Worker() || g.presence.held(now, e.Worker),
			Acquired: utc(e.Acquired), Reported: utc(e.Reported), ReservedUntil: utc(e.ReservedUntil),
		})
	}
	if n := min(fit(g, page.Workers), limit); n < len(page.Workers) {
		page.Next = page.Workers[n].Worker
		page.Workers = page.Workers[:n]
	}
	return page, nil
}

func utc(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
