package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

const (
	// viewTimeout bounds the questions to the bus for one view.
	viewTimeout = 5 * time.Second
	// maxSearches is how many requests for lists are under way at a time; others wait.
	maxSearches = 2
	// maxPages is how many pages are remembered.
	maxPages = 100
	// defaultPage and maxPage are how many tags a page has.
	defaultPage = 50
	maxPage     = 200
)

// views answer the dashboard's questions about all generators, over the bus.
type views struct {
	g        Generator
	c        *admin.Client
	feed     *feed
	overview *shared[overview]
	ending   []string // the tags that end first, as the last overview knows them; used by askAll alone

	searches turns // lists

	pages   *answers[admin.PageRequest, admin.TagsPage]
	records *answers[string, admin.TagRecord]
}

func newViews(cfg Config) *views {
	c := admin.NewClient(cfg.Conn)
	v := &views{
		g: cfg.Generator, c: c, feed: &feed{nc: cfg.Conn, js: cfg.JS},
		pages: newAnswers(maxPages, c.Tags), records: newAnswers(maxRecords, c.Tag),
		searches: make(turns, maxSearches),
	}
	v.overview = newShared(stateKept, v.askAll)
	return v
}

func (v *views) register(mux *http.ServeMux) {
	mux.HandleFunc("/dashboard/overview", func(w http.ResponseWriter, r *http.Request) {
		write(w, http.StatusOK, v.overview.get())
	})
	mux.HandleFunc("/dashboard/feed", func(w http.ResponseWriter, r *http.Request) {
		write(w, http.StatusOK, v.latestEvents())
	})
	mux.HandleFunc("/dashboard/tags", v.searches.bound(v.tags))
	mux.HandleFunc("/dashboard/workers", v.searches.bound(v.workers))
	mux.HandleFunc("/cache", v.searches.bound(v.cachePage))
	mux.HandleFunc("/db", v.searches.bound(v.dbPage))
}

// turns bound how many requests are under way. It holds a value for each.
type turns chan struct{}

// bound returns a handler that answers with the result of f, within viewTimeout and once it is its turn.
func (t turns) bound(f func(ctx context.Context, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), viewTimeout)
		defer cancel()
		select {
		case t <- struct{}{}:
			defer func() { <-t }()
		case <-ctx.Done():
			refuse(w, r, http.StatusTooManyRequests, string(bus.Overloaded), "too many searches at once: try again")
			return
		}
		body, err := f(ctx, r)
		if err != nil {
			e := refusal(err)
			refuse(w, r, e.Code, string(e.Reason), e.Message)
			return
		}
		if page, ok := body.(leafPage); ok {
			page.write(w)
			return
		}
		write(w, http.StatusOK, body)
	}
}

// refusal returns err as an error with a reason. An error without one says that no generator answers, or JetStream.
func refusal(err error) *bus.Error {
	if e, ok := errors.AsType[*bus.Error](err); ok {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &bus.Error{Code: http.StatusGatewayTimeout, Reason: bus.TimedOut, Message: err.Error()}
	}
	return &bus.Error{Code: http.StatusServiceUnavailable, Reason: bus.StoreUnavailable, Message: err.Error()}
}

// overview is the state of all generators.
type overview struct {
	Node    string        `json:"node"` // the one that answers
	UnixMS  int64         `json:"unix_ms"`
	Problem string        `json:"problem"` // why Nodes may be incomplete
	Nodes   []admin.State `json:"nodes"`
	// Lost are generators that did not answer and that another one reports as lost.
	Lost []admin.LostNode `json:"lost"`
	// Causes are what is wrong, as the generators find it.
	Causes []admin.Cause `json:"causes"`
	// Ending is what all generators have of the tags that end first.
	Ending []tagBuffers `json:"ending"`
}

// askAll asks all generators for their state, and at the same time for what they have of the tags that ended first in
// the last overview: one question after the other would take twice as long. The state of this one is there also without
// NATS.
func (v *views) askAll() overview {
	ctx, cancel := context.WithTimeout(context.Background(), viewTimeout)
	defer cancel()
	own := v.g.State()
	o := overview{Node: own.Node, UnixMS: time.Now().UnixMilli()}
	var err error
	var held []admin.BuffersPage
	var both sync.WaitGroup
	both.Go(func() { held, _ = v.c.BuffersOf(ctx, v.ending...) }) // what fails here fails for the states too
	both.Go(func() { o.Nodes, err = v.c.States(ctx) })
	both.Wait()
	if err != nil {
		o.Problem = message(err)
	}
	o.Ending, v.ending = buffersOf(v.ending, held), firstEnding(o.Nodes)
	if !slices.ContainsFunc(o.Nodes, func(s admin.State) bool { return s.Node == own.Node }) {
		o.Nodes = append(o.Nodes, own)
	}
	o.Lost = append([]admin.LostNode{}, admin.LostNodes(o.Nodes)...) // [] if there are none
	o.Causes = admin.Causes(o.Nodes)
	return o
}

// latestEvents returns the latest events, and why some may be missing.
func (v *views) latestEvents() feedView {
	view := feedView{Events: v.feed.latest()}
	if why := v.g.Readiness().Reasons["bus"]; why != "" {
		view.Problem = "New events do not arrive: " + why
	}
	return view
}

// workers answers with a page of the workers.
func (v *views) workers(ctx context.Context, r *http.Request) (any, error) {
	from, err := strconv.ParseInt(cmp.Or(r.FormValue("from"), "0"), 10, 64)
	if err != nil || from < 0 {
		return nil, badRequest("from is no worker ID")
	}
	page, err := v.c.Workers(ctx, admin.WorkersRequest{From: from})
	view := struct {
		admin.WorkersPage
		Problem string `json:"problem"`
	}{WorkersPage: page}
	if err != nil {
		view.Problem = message(err)
	}
	if view.Workers == nil {
		view.Workers = []admin.Worker{}
	}
	return view, nil
}

// The dashboard is plain files. There is no build step, and they load nothing from other
// sites.
//
//go:embed dashboard
var files embed.FS

// registerFiles serves the files of the dashboard.
func registerFiles(mux *http.ServeMux) {
	err := fs.WalkDir(files, "dashboard", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		at := "/" + name
		if path.Base(name) == "index.html" {
			at = "/{$}"
		}
		mux.HandleFunc(at, file(path.Base(name), data))
		return nil
	})
	if err != nil {
		panic("gateway: the files in this program cannot be read: " + err.Error())
	}
}

// file serves one file. A browser keeps it, and asks each time if it has changed.
func file(name string, data []byte) http.HandlerFunc {
	sum := sha256.Sum256(data)
	tag := []string{`"` + hex.EncodeToString(sum[:8]) + `"`}
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Cache-Control"] = []string{"no-cache"}
		w.Header()["Etag"] = tag
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
	}
}
