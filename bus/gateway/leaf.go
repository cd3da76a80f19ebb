package gateway

import (
	"bytes"
	"context"
	"html/template"
	"net/http"
	"strconv"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

// The other paths of Leaf: a decoder, and two pages.

const decodePath = "/decodeSnowflakeId"

// decode answers /decodeSnowflakeId?snowflakeId=N.
func (s *Server) decode(w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()["snowflakeId"]
	if len(values) == 0 {
		refuse(w, r, http.StatusBadRequest, string(bus.BadRequest), "the parameter snowflakeId is missing")
		return
	}
	d, err := s.cfg.Generator.Decode(values[0])
	if err != nil {
		write(w, http.StatusOK, struct {
			Message string `json:"errorMsg"`
		}{message(err)})
		return
	}
	ms := strconv.FormatInt(d.UnixMS, 10)
	write(w, http.StatusOK, struct {
		Worker    string `json:"workerId"`
		Sequence  string `json:"sequenceId"`
		Timestamp string `json:"timestamp"`
	}{
		strconv.FormatInt(d.Worker, 10), strconv.FormatInt(d.Sequence, 10),
		ms + "(" + time.UnixMilli(d.UnixMS).Format("2006-01-02 15:04:05.000") + ")",
	})
}

// leafRows is how many tags a page has at most.
const leafRows = 1000

// leafPage is /cache or /db, with Leaf's columns. The dashboard shows more.
type leafPage struct {
	Title string
	Head  []string
	Rows  [][]any
	Next  string // the last tag, if there are more

	err error // why it cannot be had
}

var leafHTML = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{{.Title}}</title></head>
<body>
<p><a href="/">Dashboard</a></p>
<table border="1">
<tr>{{range .Head}}<th>{{.}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table>
{{with .Next}}<p><a href="?after={{.}}">more</a></p>
{{end}}</body>
</html>
`))

// serveLeaf answers with one of the pages, from the tag after a given one on. It asks for one at a
// time.
func serveLeaf(ask func(ctx context.Context, after string) leafPage) http.HandlerFunc {
	pages := newAnswers(listKept, ask)
	return func(w http.ResponseWriter, r *http.Request) {
		p := pages.get(r.Context(), r.FormValue("after"))
		if p.err != nil {
			refuse(w, r, http.StatusServiceUnavailable, string(bus.StoreUnavailable), message(p.err))
			return
		}
		var page bytes.Buffer
		_ = leafHTML.Execute(&page, p) // a buffer takes all, and the template fits the type
		w.Header()["Content-Type"] = []string{"text/html; charset=utf-8"}
		_, _ = w.Write(page.Bytes())
	}
}

// cachePage is what this generator has of each tag in memory. As with Leaf, a segment is its next
// ID, the first ID after it, and its step.
func (v *views) cachePage(ctx context.Context, after string) leafPage {
	held, err := v.g.Buffers(ctx, admin.BuffersRequest{PageRequest: admin.PageRequest{After: after, Limit: leafRows}})
	page := leafPage{Title: "Leaf: cache", Next: held.Next, err: err, Head: []string{
		"name", "init", "next", "pos", "value0", "max0", "step0", "value1", "max1", "step1"}}
	for _, b := range held.Buffers {
		row := []any{b.Tag, b.State != "loading", len(b.Segments) > 1, 0}
		for i := range 2 {
			var value, end, step int64
			if i < len(b.Segments) {
				value, end, step = int64(b.Segments[i].Next), int64(b.Segments[i].Last)+1, b.Step
			}
			row = append(row, value, end, step)
		}
		page.Rows = append(page.Rows, row)
	}
	return page
}

// dbPage is each tag as the store has it.
func (v *views) dbPage(ctx context.Context, after string) leafPage {
	stored, err := v.c.Tags(ctx, admin.PageRequest{After: after, Limit: leafRows})
	page := leafPage{Title: "Leaf: db", Head: []string{"tag", "max", "step", "update time"}, Next: stored.Next, err: err}
	for _, t := range stored.Tags {
		page.Rows = append(page.Rows, []any{t.Tag, int64(t.MaxID), t.Step, t.Updated.Local().Format("2006-01-02 15:04:05")})
	}
	return page
}
