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
	// pageSize is how many tags a page has.
	pageSize = 50
	// maxBusiest is how many tags are the busiest: as many as a generator reports.
	maxBusiest = 20
	// maxEnding is how many of these are there because they get no new IDs.
	maxEnding = 10
	// recordTimeout is how long an answer waits for records: what is in memory does not wait for a
	// store.
	recordTimeout = time.Second
)

// tagView is a tag as the store has it, and what generators have of it in memory.
type tagView struct {
	Tag              string       `json:"tag"`
	Stored           bool         `json:"stored"`            // the store has the tag
	Unknown          bool         `json:"unknown,omitempty"` // the store cannot be asked
	*admin.TagRecord              // nil: not stored
	Problem          string       `json:"problem,omitempty"` // why it cannot be served
	Buffers          []nodeBuffer `json:"buffers"`
}

// nodeBuffer is what one generator has of a tag.
type nodeBuffer struct {
	Node string `json:"node"`
	admin.Buffer
}

// tagsView is a list of tags.
type tagsView struct {
	Tags    []tagView `json:"tags"`
	Next    string    `json:"next"`    // After of the next page; empty: this was the last
	Problem string    `json:"problem"` // why something may be missing
}

// newTagsView returns the tags of a page of the store.
func newTagsView(page admin.TagsPage, err error) tagsView {
	view := tagsView{Tags: []tagView{}, Next: page.Next}
	view.addProblem(err)
	for _, t := range page.Tags {
		view.Tags = append(view.Tags, tagView{Tag: t.Tag, Stored: true, TagRecord: &t})
	}
	for _, t := range page.Unserved {
		view.Tags = append(view.Tags, tagView{Tag: t.Tag, Stored: true, TagRecord: &t.TagRecord, Problem: t.Problem})
	}
	slices.SortFunc(view.Tags, func(x, y tagView) int { return strings.Compare(x.Tag, y.Tag) })
	return view
}

// addProblem keeps the first problem; nil is none.
func (t *tagsView) addProblem(err error) {
	if err != nil && t.Problem == "" {
		t.Problem = message(err)
	}
}

// addBuffers adds what generators hold of the tags.
func (t *tagsView) addBuffers(ctx context.Context, c *admin.Client) {
	at, names := make(map[string]*tagView), make([]string, len(t.Tags))
	for i := range t.Tags {
		names[i], t.Tags[i].Buffers = t.Tags[i].Tag, []nodeBuffer{}
		at[names[i]] = &t.Tags[i]
	}
	if len(names) == 0 {
		return
	}
	held, err := c.Buffers(ctx, admin.BuffersRequest{Tags: names})
	t.addProblem(err)
	for _, page := range held {
		for _, b := range page.Buffers {
			if tag := at[b.Tag]; tag != nil {
				tag.Buffers = append(tag.Buffers, nodeBuffer{page.Node, b})
			}
		}
	}
}

// askPage answers with a page of the tags.
func (v *views) askPage(ctx context.Context, req admin.PageRequest) tagsView {
	view := newTagsView(v.c.Tags(ctx, req))
	view.addBuffers(ctx, v.c)
	return view
}

// askBusiest answers with the tags that get no new IDs and end first, and with those that are used
// most. Where there are few tags, the unused ones are there too.
func (v *views) askBusiest(ctx context.Context, _ struct{}) tagsView {
	names := busiest(v.overview.get(ctx, struct{}{}).Nodes)
	within, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	page := newTagsView(v.c.Tags(within, admin.PageRequest{Limit: pageSize}))
	stored := make(map[string]tagView)
	for _, t := range page.Tags {
		if stored[t.Tag] = t; len(names) < maxBusiest && !slices.Contains(names, t.Tag) {
			names = append(names, t.Tag)
		}
	}
	view := tagsView{Tags: make([]tagView, len(names)), Problem: page.Problem}
	problems := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		var ok bool
		if view.Tags[i], ok = stored[name]; !ok {
			all.Go(func() { view.Tags[i], problems[i] = v.record(within, name) })
		}
	}
	all.Wait()
	for _, err := range problems {
		view.addProblem(err)
	}
	view.addBuffers(ctx, v.c)
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

// busiest returns the names of the tags whose callers are refused first if nothing more is
// reserved, and of the tags of which all generators together hand out most IDs. Generators take IDs
// of each other, so a tag ends when the last one has none.
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
