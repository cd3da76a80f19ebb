package bus

import (
	"context"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// BuffersPage is one generator's reply to leaf.admin.buffers.
type BuffersPage struct {
	Node    string   `json:"node"`
	Buffers []Buffer `json:"buffers"`
	Next    string   `json:"next"`
}

// Buffer is what a generator holds of a tag.
type Buffer struct {
	Tag      string    `json:"tag"`
	State    string    `json:"state"` // ok, loading, failing, regressed or exhausted
	Step     int64     `json:"step"`  // of the next refill
	Segments []Segment `json:"segments"`
	Left     int64     `json:"left"`  // IDs in memory
	Taken    int64     `json:"taken"` // IDs handed out since the tag was loaded
	Waiting  int       `json:"waiting"`
	Rate     float64   `json:"rate"` // IDs a second, over the last segments
	Refilled time.Time `json:"refilled,omitzero"`
	Error    string    `json:"error,omitempty"`
}

// Segment is a range in memory and the next ID to be handed out of it.
type Segment struct {
	First ID `json:"first"`
	Last  ID `json:"last"`
	Next  ID `json:"next"`
}

func (g *Generator) buffers(_ context.Context, req PageRequest) (BuffersPage, error) {
	limit, err := req.check()
	if err != nil {
		return BuffersPage{}, err
	}
	page := BuffersPage{Node: g.cfg.Node, Buffers: []Buffer{}}
	for _, v := range g.alloc.Views(req.query(limit)) {
		page.Buffers = append(page.Buffers, buffer(v))
	}
	if n := min(fit(g, page.Buffers), limit); n < len(page.Buffers) {
		page.Buffers = page.Buffers[:n]
		page.Next = page.Buffers[n-1].Tag
	}
	return page, nil
}

func buffer(v allocator.View) Buffer {
	b := Buffer{
		Tag: v.Tag, State: v.State, Step: v.Step, Segments: []Segment{}, Left: v.Left, Taken: v.Taken,
		Waiting: v.Waiting, Rate: v.Rate, Refilled: v.Refilled, Error: v.Error,
	}
	for _, s := range v.Segments {
		b.Segments = append(b.Segments, Segment{ID(s.First), ID(s.Last), ID(s.Next)})
	}
	return b
}
