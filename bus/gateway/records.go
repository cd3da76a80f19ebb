package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/leafbus/leafbus/bus"
)

const (
	// maxNames is how many tags may be named in one question, as many as generators tell of as
	// their busiest.
	maxNames = 20
	// maxRecords is how many records are remembered.
	maxRecords = 10 * maxNames
)

// storedTag is a tag's record in the store.
type storedTag struct {
	bus.TagRecord
	err error
}

// named answers with the records of the tags that are named: the busiest tags may be
// anywhere among the pages of all.
func (v *views) named(names []string) (tagsView, error) {
	if len(names) > maxNames {
		return tagsView{}, &bus.Error{Code: http.StatusBadRequest, Reason: bus.BadRequest, Message: "name at most " + strconv.Itoa(maxNames) + " tags at a time"}
	}
	found := make([]storedTag, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { found[i] = v.records.get(name) })
	}
	all.Wait()
	view := tagsView{Tags: []tagView{}}
	for i, name := range names {
		tag := tagView{Tag: name, Buffers: []nodeBuffer{}}
		switch err := found[i].err; {
		case err == nil:
			tag.fill(found[i].TagRecord)
		case !errors.Is(err, bus.UnknownTag):
			tag.Unknown = true
			if view.Problem == "" {
				view.Problem = message(err)
			}
		}
		view.Tags = append(view.Tags, tag)
	}
	return view, nil
}

// record asks for a tag's record.
func (v *views) record(ctx context.Context, name string) storedTag {
	found, err := v.c.Tag(ctx, name)
	return storedTag{found, err}
}
