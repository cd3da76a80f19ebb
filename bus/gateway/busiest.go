package gateway

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

const (
	// maxBusiest is how many tags are the busiest: as many as a generator reports.
	maxBusiest = 20
	// maxEnding is how many of these are there because they get no new IDs.
	maxEnding = 10
	// recordTimeout is how long an answer waits for records: what is in memory does not wait for a store.
	recordTimeout = time.Second
)

// askBusiest answers with the tags that get no new IDs and end first, and with those that are used most. Where there
// are few tags, the unused ones are there too.
func (v *views) askBusiest(ctx context.Context, _ struct{}) tagsView {
	states := v.overview.get(ctx, struct{}{}).Nodes
	within, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	first, err := v.c.Tags(within, admin.PageRequest{Limit: defaultPage})
	page := merge(first, nil, defaultPage)
	page.addProblem(err)
	names := busiest(states)
	for _, t := range page.Tags {
		if len(names) < maxBusiest && !slices.Contains(names, t.Tag) {
			names = append(names, t.Tag)
		}
	}
	view := tagsView{Tags: make([]tagView, len(names)), Problem: page.Problem}
	for _, s := range states {
		view.InMemory = max(view.InMemory, s.Counts.Tags)
	}
	var held []admin.BuffersPage
	problems := make([]error, len(names)+1)
	var all sync.WaitGroup
	all.Go(func() { held, problems[len(names)] = v.c.BuffersOf(ctx, names...) })
	for i, name := range names {
		if at := slices.IndexFunc(page.Tags, func(t tagView) bool { return t.Tag == name }); at >= 0 {
			view.Tags[i] = page.Tags[at]
			continue
		}
		all.Go(func() { view.Tags[i], problems[i] = v.record(within, name) })
	}
	all.Wait()
	for i := range view.Tags {
		view.Tags[i].Buffers = buffersOf(names[i], held)
	}
	for _, err := range problems {
		view.addProblem(err)
	}
	return view
}

// record is a tag as the store has it.
func (v *views) record(ctx context.Context, name string) (tagView, error) {
	record, err := v.c.Tag(ctx, name)
	switch {
	case err == nil:
		return tagView{Tag: name, Stored: true, TagRecord: &record}, nil
	case errors.Is(err, bus.UnknownTag):
		return tagView{Tag: name}, nil
	}
	return tagView{Tag: name, Unknown: true}, err
}

// busiest returns the names of the tags whose callers are refused first if nothing more is reserved, and of the tags of
// which all generators together hand out most IDs. Generators take IDs of each other, so a tag ends when the last one
// has none.
func busiest(states []admin.State) []string {
	ending, rates := make(map[string]allocator.TagEnd), make(map[string]float64)
	for i := range states { // by index: states are large
		for _, e := range states[i].Ending {
			sum := ending[e.Tag]
			ending[e.Tag] = allocator.TagEnd{Tag: e.Tag, Left: sum.Left + e.Left, Rate: sum.Rate + e.Rate}
		}
		for _, b := range states[i].Busiest {
			rates[b.Tag] += b.Rate
		}
	}
	names := slices.SortedFunc(maps.Keys(ending), func(x, y string) int {
		return cmp.Or(cmp.Compare(ending[x].Lasts(), ending[y].Lasts()), strings.Compare(x, y))
	})
	names = names[:min(len(names), maxEnding)]
	for _, name := range slices.SortedFunc(maps.Keys(rates), func(x, y string) int {
		return cmp.Or(cmp.Compare(rates[y], rates[x]), strings.Compare(x, y))
	}) {
		if len(names) < maxBusiest && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// buffersOf returns what generators hold of a tag.
func buffersOf(tag string, held []admin.BuffersPage) []nodeBuffer {
	found := []nodeBuffer{}
	for _, page := range held {
		for _, b := range page.Buffers {
			if b.Tag == tag {
				found = append(found, nodeBuffer{page.Node, b})
			}
		}
	}
	return found
}
