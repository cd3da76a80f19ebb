package gateway

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
)

// The paths that answer with IDs in JSON. A tag is the whole rest of its path.
const (
	v1Path         = "/v1/"
	segmentsPath   = v1Path + "segments/"
	snowflakesPath = v1Path + "snowflakes"
)

// The content types of RFC 8259 and RFC 9457.
var (
	v1Type      = []string{"application/json"}
	problemType = []string{"application/problem+json"}
)

// problem is an error as RFC 9457 has it. Reason and RetryAfterMS are as over NATS.
type problem struct {
	Type         string `json:"type"`
	Title        string `json:"title"` // the status in words
	Status       int    `json:"status"`
	Detail       string `json:"detail"` // for people
	Reason       string `json:"reason"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
}

// v1 answers GET and POST of /v1/segments/{tag} and /v1/snowflakes with IDs:
// {"count":1,"ranges":[{"first":"5","last":"5"}]}. IDs are strings, because JavaScript rounds numbers above 2^53.
func (s *Server) v1(w http.ResponseWriter, r *http.Request) {
	kind := generator.SnowflakeKind
	tag, ofTag := strings.CutPrefix(r.URL.Path, segmentsPath)
	switch {
	case ofTag && tag != "":
		kind = generator.SegmentKind
	case r.URL.Path != snowflakesPath:
		refuse(w, r, http.StatusNotFound, "not_found", "not found: IDs are at "+segmentsPath+"TAG and "+snowflakesPath)
		return
	}
	ranges, _, err := s.take(w, r, kind, tag)
	if err == nil {
		writeIDs(w, v1Type, ranges, true)
		return
	}
	e, ok := errors.AsType[*bus.Error](err)
	if !ok { // the caller has gone
		panic(http.ErrAbortHandler)
	}
	refuseV1(w, e)
}

// refuseV1 answers with an error. Its status is the code that the error has over NATS.
func refuseV1(w http.ResponseWriter, e *bus.Error) {
	status, retry := e.Code, e.RetryAfter
	if e.Reason == bus.Overloaded {
		status = http.StatusServiceUnavailable // 429 would blame the caller
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		retry = cmp.Or(retry, time.Second)
	}
	if retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(retry.Seconds()))))
	}
	writeAs(w, problemType, status, problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: e.Message, Reason: string(e.Reason), RetryAfterMS: (retry + time.Millisecond - 1).Milliseconds(),
	})
}
