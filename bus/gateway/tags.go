package gateway

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

// defaultPage and maxPage are how many tags a page has.
const (
	defaultPage = 50
	maxPage     = 200
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

// tagsView is a page of tags.
type tagsView struct {
	Tags    []tagView `json:"tags"`
	Next    string    `json:"next"`    // After of the next page; empty: this was the last
	Problem string    `json:"problem"` // why something may be missing
	// InMemory is how many tags the generator with the most has in memory, beside the busiest.
	InMemory int `json:"in_memory,omitempty"`
}

// addProblem keeps the first problem; nil is none.
func (t *tagsView) addProblem(err error) {
	if err != nil && t.Problem == "" {
		t.Problem = message(err)
	}
}

// tags answers with a page of the tags whose name contains q.
func (v *views) tags(w http.ResponseWriter, r *http.Request) {
	limit, err := strconv.Atoi(cmp.Or(r.FormValue("limit"), strconv.Itoa(defaultPage)))
	if err != nil || limit < 1 || limit > maxPage {
		refuse(w, r, http.StatusBadRequest, string(bus.BadRequest), "limit is not from 1 to "+strconv.Itoa(maxPage))
		return
	}
	write(w, http.StatusOK, v.pages.get(r.Context(),
		admin.PageRequest{Contains: r.FormValue("q"), After: r.FormValue("after"), Limit: limit}))
}

func (v *views) askPage(ctx context.Context, req admin.PageRequest) tagsView {
	var stored admin.TagsPage
	var held []admin.BuffersPage
	var errStored, errHeld error
	var both sync.WaitGroup
	both.Go(func() { stored, errStored = v.c.Tags(ctx, req) })
	both.Go(func() { held, errHeld = v.c.Buffers(ctx, req) })
	both.Wait()
	view := merge(stored, held, req.Limit)
	for i := range view.Tags {
		view.Tags[i].Unknown = errStored != nil
	}
	view.addProblem(errStored)
	view.addProblem(errHeld)
	return view
}

// merge makes one page of the store's tags and the generators' buffers. It has up to limit
// tags, and ends where the first incomplete page ends: beyond that, tags may be missing.
func merge(stored admin.TagsPage, held []admin.BuffersPage, limit int) tagsView {
	byName := make(map[string]*tagView)
	at := func(name string) *tagView {
		if byName[name] == nil {
			byName[name] = &tagView{Tag: name, Buffers: []nodeBuffer{}}
		}
		return byName[name]
	}
	end := "" // the last name that all pages include; empty: all pages are complete
	reaches := func(next string) {
		if next != "" && (end == "" || next < end) {
			end = next
		}
	}
	store := func(t admin.TagRecord, problem string) {
		tag := at(t.Tag)
		tag.Stored, tag.TagRecord = true, &t
		tag.Problem = problem
	}
	for _, t := range stored.Tags {
		store(t, "")
	}
	for _, t := range stored.Unserved {
		store(t.TagRecord, t.Problem)
	}
	reaches(stored.Next)
	for _, page := range held {
		for _, b := range page.Buffers {
			tag := at(b.Tag)
			tag.Buffers = append(tag.Buffers, nodeBuffer{page.Node, b})
		}
		reaches(page.Next)
	}
	view := tagsView{Tags: []tagView{}, Next: end}
	for _, tag := range byName {
		if end == "" || tag.Tag <= end {
			view.Tags = append(view.Tags, *tag)
		}
	}
	slices.SortFunc(view.Tags, func(x, y tagView) int { return strings.Compare(x.Tag, y.Tag) })
	if len(view.Tags) > limit {
		view.Tags = view.Tags[:limit]
		view.Next = view.Tags[limit-1].Tag
	}
	return view
}
