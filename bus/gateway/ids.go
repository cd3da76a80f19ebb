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
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
)

// The paths of IDs: those of /v1, which answer with JSON, and Leaf's.
const (
	v1Path            = "/v1/"
	segmentsPath      = v1Path + "segments/"
	snowflakesPath    = v1Path + "snowflakes"
	leafPath          = "/api/"
	leafSegmentPath   = leafPath + "segment/get/"
	leafSnowflakePath = leafPath + "snowflake/get/"
)

// The content types: as Leaf writes them, and of RFC 8259.
var (
	plainType = []string{"text/plain;charset=UTF-8"}
	jsonType  = []string{"application/json;charset=UTF-8"}
	v1Type    = []string{"application/json"}
)

// isV1 reports whether a request is for a path of /v1.
func isV1(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, v1Path) }

// wanted returns which IDs a path is for. A tag is the whole rest of its path. As with Leaf, the
// key of a snowflake has no meaning.
func wanted(path string) (kind generator.Kind, tag string, ok bool) {
	if path == snowflakesPath {
		return generator.SnowflakeKind, "", true
	}
	if key, ok := strings.CutPrefix(path, leafSnowflakePath); ok {
		return generator.SnowflakeKind, key, key != ""
	}
	tag, ok = strings.CutPrefix(path, segmentsPath)
	if !ok {
		tag, ok = strings.CutPrefix(path, leafSegmentPath)
	}
	return generator.SegmentKind, tag, ok && tag != ""
}

// ids answers with IDs: below /v1 {"count":1,"ranges":[{"first":"5","last":"5"}]}, in strings,
// because JavaScript rounds numbers above 2^53. Leaf's paths answer as Leaf does, and several IDs
// have the form that they have over NATS.
func (s *Server) ids(w http.ResponseWriter, r *http.Request) {
	kind, tag, ok := wanted(r.URL.Path)
	if !ok {
		refuse(w, r, http.StatusNotFound, "not_found", "not found: IDs are at "+segmentsPath+"TAG, "+snowflakesPath+", "+
			leafSegmentPath+"TAG and "+leafSnowflakePath+"KEY")
		return
	}
	ranges, batch, err := s.take(w, r, kind, tag)
	contentType, asJSON := plainType, false
	switch {
	case err != nil:
		s.refuseIDs(w, r, kind, err)
		return
	case isV1(r):
		contentType, asJSON = v1Type, true
	case prefersJSON(r.Header["Accept"]):
		contentType, asJSON = jsonType, batch // Leaf's single ID is a number in JSON too
	}
	w.Header()["Content-Type"] = contentType
	_, _ = w.Write(wire.AppendReply(make([]byte, 0, 64), ranges, asJSON)) // if the caller has gone, the IDs are a gap
}

// take takes the IDs that a request asks for, and reports whether it has a count. HEAD takes none,
// as nobody sees them.
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
	case r.Method == http.MethodHead:
		err = s.lacks(r.Context(), kind, tag)
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

// lacks returns why no request for IDs of a tag succeeds, however many IDs there are: HEAD has the
// status of GET.
func (s *Server) lacks(ctx context.Context, kind generator.Kind, tag string) error {
	if kind == generator.SnowflakeKind {
		return nil
	}
	_, err := admin.NewClient(s.cfg.JS.Conn(), admin.Timeout(time.Second)).Tag(ctx, tag)
	if errors.Is(err, bus.UnknownTag) || errors.Is(err, bus.BadTag) {
		return err
	}
	return nil
}

// prefersJSON reports whether the Accept headers of a request name JSON before plain text. Weights
// do not count: clients that want JSON name it first.
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

func badRequest(text string) error {
	return &bus.Error{Code: http.StatusBadRequest, Reason: bus.BadRequest, Message: text}
}
