package gateway

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/wire"
)

// Leaf's codes for why there is no ID.
const (
	notInitialised = -1
	unknownKey     = -2
	noneLeft       = -3 // both buffers are empty, or the clock went back
)

// leafException is the exception that Leaf names in these cases.
const leafException = "com.sankuai.inf.leaf.server.exception.LeafServerException"

// failure is the body of an error, in the order in which Leaf has the fields.
type failure struct {
	Timestamp int64  `json:"timestamp"` // Unix ms
	Status    int    `json:"status"`
	Error     string `json:"error"` // the status in words
	// Exception is Leaf's, or where Leaf has none a stable word for programs.
	Exception string `json:"exception"`
	Message   string `json:"message"`
	Path      string `json:"path"`
}

// problemType is the content type of RFC 9457.
var problemType = []string{"application/problem+json"}

// problem is an error as RFC 9457 has it. Reason and RetryAfterMS are as over NATS.
type problem struct {
	Type         string `json:"type"`
	Title        string `json:"title"` // the status in words
	Status       int    `json:"status"`
	Detail       string `json:"detail"` // for people
	Reason       string `json:"reason"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
}

// refuseIDs answers with the error of a request for IDs. Of Leaf's API the body says no more than
// Leaf's; the reason and the text are in headers. Errors that only a count can cause are none of
// Leaf's.
func (s *Server) refuseIDs(w http.ResponseWriter, r *http.Request, kind generator.Kind, err error) {
	e, ok := errors.AsType[*bus.Error](err)
	if !ok { // the caller has gone
		panic(http.ErrAbortHandler)
	}
	if isV1(r) {
		refuseV1(w, e)
		return
	}
	h := w.Header()
	h.Set("Leaf-Error-Reason", string(e.Reason))
	h.Set("Leaf-Error", e.Message)
	if e.Reason == bus.BatchTooLarge || e.Reason == bus.BadRequest {
		refuse(w, r, e.Code, string(e.Reason), e.Message)
		return
	}
	setRetryAfter(w, e.RetryAfter)
	id := noneLeft
	switch {
	case e.Reason == bus.UnknownTag, e.Reason == bus.BadTag:
		id = unknownKey
	case e.Reason == bus.NoWorkerID, kind == generator.SegmentKind && !s.cfg.Generator.Initialised():
		id = notInitialised
	}
	refuse(w, r, http.StatusInternalServerError, leafException, "Result{id="+strconv.Itoa(id)+", status=EXCEPTION}")
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
	setRetryAfter(w, retry)
	writeAs(w, problemType, status, problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: e.Message, Reason: string(e.Reason), RetryAfterMS: (retry + time.Millisecond - 1).Milliseconds(),
	})
}

// setRetryAfter says in whole seconds when to ask again; 0: at no certain time.
func setRetryAfter(w http.ResponseWriter, after time.Duration) {
	if after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(after.Seconds()))))
	}
}

// refuse answers with an error that is not about IDs, in the form of the path.
func refuse(w http.ResponseWriter, r *http.Request, status int, exception, text string) {
	if isV1(r) {
		refuseV1(w, &bus.Error{Code: status, Reason: bus.Reason(exception), Message: text})
		return
	}
	write(w, status, failure{time.Now().UnixMilli(), status, http.StatusText(status), exception, text,
		r.URL.EscapedPath()})
}

// write answers with JSON.
func write(w http.ResponseWriter, status int, body any) { writeAs(w, jsonType, status, body) }

func writeAs(w http.ResponseWriter, contentType []string, status int, body any) {
	data := wire.Encode(body) // without HTML escapes, as Leaf; browsers see the content type JSON
	w.Header()["Content-Type"] = contentType
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// message is the text of an error for people, without its code.
func message(err error) string {
	if e, ok := errors.AsType[*bus.Error](err); ok {
		return e.Message
	}
	return err.Error()
}
