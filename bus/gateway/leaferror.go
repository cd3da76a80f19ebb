package gateway

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/leafbus/leafbus/bus"
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

// segmentResult is Leaf's code for a reason why there is no ID of a tag.
func (s *Server) segmentResult(why bus.Reason) int {
	switch {
	case why == bus.UnknownTag, why == bus.BadTag:
		return unknownKey
	case !s.cfg.Generator.Initialised():
		return notInitialised
	}
	return noneLeft
}

// snowflakeResult is Leaf's code for a reason why there is no snowflake.
func snowflakeResult(why bus.Reason) int {
	if why == bus.NoWorkerID {
		return notInitialised
	}
	return noneLeft
}

// refuseAs answers with an error as Leaf does. The body says no more than Leaf's; the
// reason and the text are in headers. Errors that only a count can cause have the form
// that they have over NATS.
func refuseAs(w http.ResponseWriter, r *http.Request, err error, result func(bus.Reason) int) {
	e, ok := errors.AsType[*bus.Error](err)
	if !ok { // the caller has gone
		panic(http.ErrAbortHandler)
	}
	h := w.Header()
	h.Set("Leaf-Error-Reason", string(e.Reason))
	h.Set("Leaf-Error", e.Message)
	if e.Reason == bus.BatchTooLarge || e.Reason == bus.BadRequest {
		refuse(w, r, e.Code, string(e.Reason), e.Message)
		return
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	refuse(w, r, http.StatusInternalServerError, leafException,
		"Result{id="+strconv.Itoa(result(e.Reason))+", status=EXCEPTION}")
}

func badRequest(text string) error {
	return &bus.Error{Code: http.StatusBadRequest, Reason: bus.BadRequest, Message: text}
}

// refuse answers with an error that has no IDs' reason, in the form of the path.
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
	w.Header()["X-Content-Type-Options"] = nosniff
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
