package gateway

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
)

// The paths of Leaf's API, before the key.
const (
	segmentPath   = "/api/segment/get/"
	snowflakePath = "/api/snowflake/get/"
)

// ids answers the two requests of Leaf's API that take IDs, as Leaf does: see
// refuseAs for how it refuses. With the parameter count there are several IDs, in the form that
// they have over NATS.
type ids struct {
	g Generator
	m *Metrics
}

// segment answers /api/segment/get/{tag}.
func (s ids) segment(w http.ResponseWriter, r *http.Request, tag string) {
	s.answer(w, r, generator.SegmentKind, tag, func(n int64) ([]bus.Range, error) { return s.g.Take(r.Context(), tag, n) }, s.segmentResult)
}

// snowflake answers /api/snowflake/get/{key}. As with Leaf, the key says nothing.
func (s ids) snowflake(w http.ResponseWriter, r *http.Request, key string) {
	s.answer(w, r, generator.SnowflakeKind, key, func(n int64) ([]bus.Range, error) { return s.g.Snowflakes(r.Context(), n) }, snowflakeResult)
}

func (s ids) answer(w http.ResponseWriter, r *http.Request, kind generator.Kind, key string, take func(n int64) ([]bus.Range, error), result func(bus.Reason) int) {
	if key == "" {
		refuse(w, r, http.StatusNotFound, "not_found", "a key is wanted at the end of the path")
		return
	}
	asJSON := prefersJSON(r.Header["Accept"])
	count, batch, err := parseCount(r.URL.RawQuery)
	if err != nil {
		s.m.Answered(generator.Answer{Kind: kind, Transport: generator.HTTP, Reason: bus.BadRequest}) // the generator never sees it
		refuseAs(w, r, err, result)
		return
	}
	if r.Method == http.MethodHead { // who asks for no body gets no ID
		writeIDs(w, asJSON, nil)
		return
	}
	ranges, err := take(count)
	if err != nil {
		refuseAs(w, r, err, result)
		return
	}
	// Leaf's single ID is a number in JSON too.
	writeIDs(w, asJSON, bus.AppendReply(make([]byte, 0, 64), ranges, asJSON && batch))
}

// The content types, as Leaf writes them.
var (
	plainType = []string{"text/plain;charset=UTF-8"}
	jsonType  = []string{"application/json;charset=UTF-8"}
)

func writeIDs(w http.ResponseWriter, asJSON bool, body []byte) {
	w.Header()["Content-Type"] = plainType
	if asJSON {
		w.Header()["Content-Type"] = jsonType
	}
	_, _ = w.Write(body) // who has gone leaves a gap
}

// parseCount returns the parameter count of a query, and whether there is one;
// without it, one ID is wanted.
func parseCount(query string) (n int64, given bool, err error) {
	if query == "" {
		return 1, false, nil
	}
	values, err := url.ParseQuery(query)
	if err != nil && strings.Contains(query, "count") { // it may be what cannot be read
		return 0, false, badCount(query)
	}
	counts, given := values["count"]
	if !given {
		return 1, false, nil
	}
	if len(counts) > 1 {
		return 0, true, badCount(strings.Join(counts, " and "))
	}
	req, err := bus.ParseRequest([]byte(counts[0]))
	if err != nil || req.JSON || counts[0] == "" { // empty is one over NATS, and here a mistake
		return 0, true, badCount(counts[0])
	}
	return req.Count, true, nil
}

func badCount(value string) error {
	return &bus.Error{Code: http.StatusBadRequest, Reason: bus.BadRequest, Message: "count is " + strconv.QuoteToASCII(value) + ", not one whole number from 1"}
}

// decode answers /decodeSnowflakeId?snowflakeId=N.
func (s *Server) decode(w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()["snowflakeId"]
	if len(values) == 0 {
		refuse(w, r, http.StatusBadRequest, string(bus.BadRequest), "the parameter snowflakeId is wanted")
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
