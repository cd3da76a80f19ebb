package gateway

import (
	"context"
	"embed"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/leafbus/leafbus/bus/admin"
)

// views answer questions about all generators, over the bus.
type views struct {
	g        Generator
	c        *admin.Client
	overview *answers[struct{}, overview]
}

// registerViews adds the dashboard and Leaf's pages.
func registerViews(mux *http.ServeMux, cfg Config) {
	v := &views{g: cfg.Generator, c: admin.NewClient(cfg.JS.Conn())}
	v.overview = newAnswers(stateKept, v.askAll)
	mux.HandleFunc("/dashboard/overview", serveAnswer(v.overview))
	mux.HandleFunc("/dashboard/busiest", serveAnswer(newAnswers(stateKept, v.askBusiest)))
	mux.HandleFunc("/dashboard/events", serveAnswer(newAnswers(stateKept, (&latest{js: cfg.JS}).ask)))
	pages := newAnswers(listKept, v.askPage)
	mux.HandleFunc("/dashboard/tags", func(w http.ResponseWriter, r *http.Request) { // whose name contains q
		write(w, http.StatusOK, pages.get(r.Context(),
			admin.PageRequest{Contains: r.FormValue("q"), After: r.FormValue("after"), Limit: pageSize}))
	})
	mux.HandleFunc("/cache", serveLeaf(v.cachePage))
	mux.HandleFunc("/db", serveLeaf(v.dbPage))
	names, _ := fs.Glob(files, "dashboard/*") // fails for a bad pattern alone
	for _, name := range names {
		at := "/" + name
		if path.Base(name) == "index.html" {
			at = "/{$}"
		}
		mux.HandleFunc(at, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, name) })
	}
}

func serveAnswer[T any](a *answers[struct{}, T]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { write(w, http.StatusOK, a.get(r.Context(), struct{}{})) }
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
}

// askAll asks all generators for their state. That of this one is there also without NATS.
func (v *views) askAll(ctx context.Context, _ struct{}) overview {
	own := v.g.State()
	o := overview{Node: own.Node, UnixMS: time.Now().UnixMilli()}
	var err error
	if o.Nodes, err = v.c.States(ctx); err != nil {
		o.Problem = message(err)
	}
	if !slices.ContainsFunc(o.Nodes, func(s admin.State) bool { return s.Node == own.Node }) {
		o.Nodes = append(o.Nodes, own)
	}
	o.Lost = append([]admin.LostNode{}, admin.LostNodes(o.Nodes)...) // [] if there are none
	o.Causes = admin.Causes(o.Nodes)
	return o
}

// The dashboard is plain files. There is no build step, and they load nothing from other sites.
//
//go:embed dashboard
var files embed.FS
