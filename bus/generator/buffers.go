package generator

import (
	"context"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

func (g *Generator) buffers(_ context.Context, req bus.PageRequest) (bus.BuffersPage, error) {
	limit, err := pageLimit(req)
	if err != nil {
		return bus.BuffersPage{}, err
	}
	page := bus.BuffersPage{Node: g.cfg.Node, Buffers: []bus.Buffer{}}
	for _, v := range g.alloc.Views(pageQuery(req, limit)) {
		page.Buffers = append(page.Buffers, buffer(v))
	}
	if n := min(fit(g, page.Buffers), limit); n < len(page.Buffers) {
		page.Buffers = page.Buffers[:n]
		page.Next = page.Buffers[n-1].Tag
	}
	return page, nil
}

func buffer(v allocator.View) bus.Buffer {
	b := bus.Buffer{
		Tag: v.Tag, State: v.State, Step: v.Step, Segments: []bus.Segment{}, Left: v.Left, Taken: v.Taken,
		Waiting: v.Waiting, Rate: v.Rate, Refilled: v.Refilled, Error: v.Error,
	}
	for _, s := range v.Segments {
		b.Segments = append(b.Segments, bus.Segment{First: bus.ID(s.First), Last: bus.ID(s.Last), Next: bus.ID(s.Next)})
	}
	return b
}
