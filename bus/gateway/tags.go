package gateway

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leafbus/leafbus/bus"
)

// tagView is a tag as the store has it, and what generators have of it in memory.
type tagView struct {
	Tag         string       `json:"tag"`
	Stored      bool         `json:"stored"`            // and so what follows is known
	Unknown     bool         `json:"unknown,omitempty"` // whether it is stored: the store cannot be asked
	MaxID       bus.ID       `json:"max_id,omitempty"`
	Step        int64        `json:"step,omitempty"`
	Description string       `json:"description,omitempty"`
	Updated     time.Time    `json:"updated,omitzero"`
	Problem     string       `json:"problem,omitempty"` // why it cannot be served
	Buffers     []nodeBuffer `json:"buffers"`
}

// fill takes over what the store has.
func (t *tagView) fill(r bus.TagRecord) {
	t.Stored, t.MaxID, t.Step, t.Description, t.Updated = true, r.MaxID, r.Step, r.Description, r.Updated
}

// nodeBuffer is what one generator has of a tag.
type nodeBuffer struct {
	Node string `json:"node"`
	bus.Buffer
}

// tagsView is a page of tags.
type tagsView struct {
	Tags    []tagView `json:"tags"`
	Next    string    `json:"next"`    // After of the next page; empty: this was the last
	Problem string    `json:"problem"` // why something may lack
}

// tags answers with a page of the tags whose name contains q, or with the records of
// those that are named.
func (v *views) tags(ctx context.Context, r *http.Request) (any, error) {
	if names := r.URL.Query()["name"]; len(names) > 0 {
		return v.named(names)
	}
	limit, err := strconv.Atoi(cmp.Or(r.FormValue("limit"), strconv.Itoa(defaultPage)))
	if err != nil || limit < 1 || limit > maxPage {
		return nil, &bus.Error{Code: http.StatusBadRequest, Reason: bus.BadRequest, Message: "limit is not from 1 to " + strconv.Itoa(maxPage)}
	}
	req := bus.PageRequest{Contains: r.FormValue("q"), After: r.FormValue("after"), Limit: limit}
	var stored storedPage
	var held []bus.BuffersPage
	var errHeld error
	var both sync.WaitGroup
	both.Go(func() { stored = v.pages.get(req) })
	both.Go(func() { held, errHeld = v.c.Buffers(ctx, req) })
	both.Wait()
	view := merge(stored.TagsPage, held, limit)
	for i := range view.Tags {
		view.Tags[i].Unknown = stored.err != nil
	}
	for _, err := range []error{stored.err, errHeld} {
		if err != nil && view.Problem == "" {
			view.Problem = message(err)
		}
	}
	return view, nil
}

// storedPage is a page of what the store has.
type storedPage struct {
	bus.TagsPage
	err error
}

// stored asks for a page: of a store with many tags it takes long.
func (v *views) stored(ctx context.Context, req bus.PageRequest) storedPage {
	page, err := v.c.Tags(ctx, req)
	return storedPage{page, err}
}

// merge makes one page of what the store has and what generators hold: up to limit
// tags, and none beyond where the first of the pages ends that is not the last of its kind.
func merge(stored bus.TagsPage, held []bus.BuffersPage, limit int) tagsView {
	byName := make(map[string]*tagView)
	at := func(name string) *tagView {
		if byName[name] == nil {
			byName[name] = &tagView{Tag: name, Buffers: []nodeBuffer{}}
		}
		return byName[name]
	}
	end := "" // the last name that all pages reach; empty: all reach the end
	reaches := func(next string) {
		if next != "" && (end == "" || next < end) {
			end = next
		}
	}
	store := func(t bus.TagRecord, problem string) {
		tag := at(t.Tag)
		tag.fill(t)
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
