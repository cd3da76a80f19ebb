package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
)

// The paths of Leaf's API, before the key.
const (
	segmentPath   = "/api/segment/get/"
	snowflakePath = "/api/snowflake/get/"
	decodePath    = "/decodeSnowflakeId"
)

// segment answers /api/segment/get/{tag}, one of the two requests of Leaf's API that take
// IDs. It answers as Leaf does: see refuseAs for its errors. The parameter count asks for
// several IDs, which have the form that they have over NATS.
func (s *Server) segment(w http.ResponseWriter, r *http.Request, tag string) {
	s.answer(w, r, generator.SegmentKind, tag, s.segmentResult)
}

// snowflake answers /api/snowflake/get/{key}, the other one. As with Leaf, the key has no
// meaning.
func (s *Server) snowflake(w http.ResponseWriter, r *http.Request, key string) {
	s.answer(w, r, generator.SnowflakeKind, key, snowflakeResult)
}

func (s *Server) answer(
	w http.ResponseWriter, r *http.Request, kind generator.Kind, key string, result func(bus.Reason) int,
) {
	if key == "" {
		refuse(w, r, http.StatusNotFound, "not_found", "the path must end with a key")
		return
	}
	asJSON := prefersJSON(r.Header["Accept"])
	ranges, batch, err := s.take(w, r, kind, key)
	if err != nil {
		refuseAs(w, r, err, result)
		return
	}
	contentType := plainType
	if asJSON {
		contentType = jsonType
	}
	writeIDs(w, contentType, ranges, asJSON && batch) // Leaf's single ID is a number in JSON too
}

// take takes the IDs that a request asks for, and reports whether it has a count. HEAD takes none.
func (s *Server) take(
	w http.ResponseWriter, r *http.Request, kind generator.Kind, tag string,
) (ranges []bus.Range, batch bool, err error) {
	count, batch, err := parseCount(r.URL.RawQuery, isV1(r))
	if err == nil && isV1(r) && r.ContentLength > 0 {
		err = badRequest("a request has no body: the count is a parameter, ?count=100")
	}
	switch {
	case err != nil: // the generator never sees it
		s.cfg.Metrics.Answered(generator.Answer{Kind: kind, Transport: generator.HTTP, Reason: bus.BadRequest})
	case r.Method == http.MethodHead: // an answer without a body takes no ID
		err = s.refusesTag(r.Context(), kind, tag)
	case kind == generator.SnowflakeKind:
		ranges, err = s.cfg.Generator.Snowflakes(r.Context(), count)
	default:
		ranges, err = s.cfg.Generator.Take(r.Context(), tag, count)
		if err == nil && s.cfg.Generator.Order(tag) == allocator.Strict {
			w.Header().Set(wire.HeaderOrder, idspace.OrderStrict)
		}
	}
	return ranges, batch, err
}

// refusesTag returns why no request for IDs of a tag succeeds, however many IDs there are: HEAD has the status of GET.
func (s *Server) refusesTag(ctx context.Context, kind generator.Kind, tag string) error {
	if kind == generator.SnowflakeKind {
		return nil
	}
	err := s.views.lacks.get(ctx, tag)
	if errors.Is(err, bus.UnknownTag) || errors.Is(err, bus.BadTag) {
		return err
	}
	return nil
}

// The content types, as Leaf writes them.
var (
	plainType = []string{"text/plain;charset=UTF-8"}
	jsonType  = []string{"application/json;charset=UTF-8"}
)

// writeIDs answers with IDs. Without ranges it answers to HEAD.
func writeIDs(w http.ResponseWriter, contentType []string, ranges []bus.Range, asJSON bool) {
	w.Header()["Content-Type"] = contentType
	if len(ranges) > 0 {
		_, _ = w.Write(wire.AppendReply(make([]byte, 0, 64), ranges, asJSON)) // if the caller has gone, the IDs are a gap
	}
}

// prefersJSON reports whether the Accept headers of a request name JSON before plain text. Weights do not count:
// clients that want JSON name it first.
func prefersJSON(accept []string) bool {
	named := strings.ToLower(strings.Join(accept, ","))
	json, plain := strings.Index(named, "application/json"), strings.Index(named, "text/plain")
	return json >= 0 && (plain < 0 || json < plain)
}

// parseCount returns the parameter count of a query, and whether there is one. Without it
// the request is for one ID. Alone: another parameter, such as a mistyped count, is refused.
func parseCount(query string, alone bool) (n int64, given bool, err error) {
	if query == "" {
		return 1, false, nil
	}
	values, err := url.ParseQuery(query)
	if err != nil && (alone || strings.Contains(query, "count")) { // count may be the unreadable part
		return 0, false, badCount(query)
	}
	for name := range values {
		if alone && name != "count" {
			return 0, false, badRequest("unknown parameter " + strconv.QuoteToASCII(name) + ": the only one is count")
		}
	}
	counts, given := values["count"]
	if !given {
		return 1, false, nil
	}
	if len(counts) > 1 {
		return 0, true, badCount(strings.Join(counts, " and "))
	}
	req, err := wire.ParseRequest([]byte(counts[0]))
	if err != nil || req.JSON || counts[0] == "" { // an empty request is for one ID over NATS, but a mistake here
		return 0, true, badCount(counts[0])
	}
	return req.Count, true, nil
}

func badCount(value string) error {
	return badRequest("count is " + strconv.QuoteToASCII(value) + ", not one whole number from 1")
}

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
