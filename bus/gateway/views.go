package gateway

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/leafbus/leafbus/bus"
)

const (
	// viewTimeout bounds the questions to the bus for one view.
	viewTimeout = 5 * time.Second
	// patience is for how long a generator that does not answer may just be slow.
	patience = 10 * time.Second
	// maxSearches is how many questions for lists are under way at a time; others wait.
	maxSearches = 2
	// maxPages is how many pages are remembered.
	maxPages = 100
	// defaultPage and maxPage are the tags of a page.
	defaultPage = 50
	maxPage     = 200
)

// views answer the dashboard with what the bus tells of all generators.
type views struct {
	g        Generator
	c        *bus.Client
	feed     *feed
	overview *shared[overview]
	latest   *shared[feedView]
	searches chan struct{}        // taken by each of them
	heard    map[string]time.Time // when each generator last answered; of told alone

	pages   *answers[bus.PageRequest, storedPage]
	records *answers[string, storedTag]
}

func newViews(cfg Config) *views {
	v := &views{
		g: cfg.Generator, c: cfg.Client, feed: newFeed(cfg.Client), searches: make(chan struct{}, maxSearches), heard: make(map[string]time.Time),
	}
	v.overview, v.latest = newShared(v.lookAround), newShared(v.told)
	v.pages, v.records = newAnswers(maxPages, v.stored), newAnswers(maxRecords, v.record)
	return v
}

func (v *views) register(mux *http.ServeMux) {
	mux.HandleFunc("/dashboard/overview", func(w http.ResponseWriter, r *http.Request) { write(w, http.StatusOK, v.overview.get()) })
	mux.HandleFunc("/dashboard/feed", func(w http.ResponseWriter, r *http.Request) { write(w, http.StatusOK, v.latest.get()) })
	mux.HandleFunc("/dashboard/tags", v.bounded(v.tags))
	mux.HandleFunc("/dashboard/workers", v.bounded(v.workers))
}

// bounded bounds how many questions to the bus viewers have under way, and how long each takes.
func (v *views) bounded(f func(ctx context.Context, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), viewTimeout)
		defer cancel()
		select {
		case v.searches <- struct{}{}:
			defer func() { <-v.searches }()
		case <-ctx.Done():
			refuse(w, r, http.StatusTooManyRequests, string(bus.Overloaded), "too many look at once: try again")
			return
		}
		body, err := f(ctx, r)
		if e, ok := errors.AsType[*bus.Error](err); ok {
			refuse(w, r, e.Code, string(e.Reason), e.Message)
			return
		}
		write(w, http.StatusOK, body)
	}
}

// overview is the state of all generators.
type overview struct {
	Node    string      `json:"node"` // the one that tells
	UnixMS  int64       `json:"unix_ms"`
	Problem string      `json:"problem"` // why Nodes may lack some
	Nodes   []bus.State `json:"nodes"`
}

// lookAround asks all generators for their state. The own is there also when NATS is not.
func (v *views) lookAround() overview {
	ctx, cancel := context.WithTimeout(context.Background(), viewTimeout)
	defer cancel()
	own := v.g.State()
	o := overview{Node: own.Node, UnixMS: time.Now().UnixMilli()}
	var err error
	if o.Nodes, err = v.c.States(ctx); err != nil {
		o.Problem = message(err)
	}
	for _, s := range o.Nodes {
		if s.Node == own.Node {
			return o
		}
	}
	o.Nodes = append(o.Nodes, own)
	return o
}

// told is what was told of late, and why more may not be heard.
func (v *views) told() feedView {
	view := v.feed.view(v.running())
	if why := v.g.Readiness().Reasons["bus"]; why != "" {
		view.Problem = "What happens is not heard: " + why
	}
	return view
}

// running returns what tells the generators that are there; nil: that is not known.
func (v *views) running() func(node string) bool {
	all := v.overview.get()
	if all.Problem != "" {
		return nil
	}
	now := time.Now()
	for i := range all.Nodes { // by index: states are large
		v.heard[all.Nodes[i].Node] = now
	}
	maps.DeleteFunc(v.heard, func(_ string, at time.Time) bool { return now.Sub(at) > patience })
	return func(node string) bool { return !v.heard[node].IsZero() }
}

// workers answers with a page of the workers.
func (v *views) workers(ctx context.Context, r *http.Request) (any, error) {
	from, err := strconv.ParseInt(cmp.Or(r.FormValue("from"), "0"), 10, 64)
	if err != nil || from < 0 {
		return nil, &bus.Error{Code: http.StatusBadRequest, Reason: bus.BadRequest, Message: "from is no worker"}
	}
	page, err := v.c.Workers(ctx, bus.WorkersRequest{From: from})
	view := struct {
		bus.WorkersPage
		Problem string `json:"problem"`
	}{WorkersPage: page}
	if err != nil {
		view.Problem = message(err)
	}
	if view.Workers == nil {
		view.Workers = []bus.Worker{}
	}
	return view, nil
}
