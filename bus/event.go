package bus

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/snowflake"
)

// Event is an event as the stream keeps it: a CloudEvent 1.0 in binary mode,
// on the subject leaf.events.<severity>.<kind>.<what>.<key>. Its JSON is the
// structured form of the same CloudEvent.
type Event struct {
	SpecVersion string          `json:"specversion"` // 1.0
	ID          string          `json:"id"`
	Source      string          `json:"source"`  // /leaf/<node>
	Type        string          `json:"type"`    // leaf.<kind>.<what>
	Key         string          `json:"subject"` // a tag, worker or node
	Time        time.Time       `json:"time"`
	ContentType string          `json:"datacontenttype"`
	Severity    string          `json:"severity"` // info or alert
	Data        json.RawMessage `json:"data"`
}

const (
	info  = "info"
	alert = "alert"

	jsonType = "application/json"
)

// The headers of CloudEvents' binary mode.
const (
	headerSpec    = "ce-specversion"
	headerID      = "ce-id"
	headerSource  = "ce-source"
	headerType    = "ce-type"
	headerSubject = "ce-subject"
	headerTime    = "ce-time"
	headerContent = "ce-datacontenttype"
)

// newEvent returns the message of an event. kind is kind and what, with a dot
// between them; body is a struct that names the node.
func newEvent(severity, kind, key, node string, body any) *nats.Msg {
	id := nuid.Next()
	msg := nats.NewMsg(subjectEvents + "." + severity + "." + kind + "." + key)
	for name, value := range map[string]string{
		headerSpec:    "1.0",
		headerID:      id,
		nats.MsgIdHdr: id,
		headerSource:  "/leaf/" + node,
		headerType:    "leaf." + kind,
		headerSubject: key,
		headerTime:    time.Now().UTC().Format(time.RFC3339Nano),
		headerContent: jsonType,
	} {
		msg.Header[name] = []string{value}
	}
	msg.Data = encode(body)
	return msg
}

// ParseEvent reads an event from the subject, header and body of its message.
func ParseEvent(subject string, header nats.Header, body []byte) (Event, error) {
	rest, ok := strings.CutPrefix(subject, subjectEvents+".")
	tokens := strings.SplitN(rest, ".", 4)
	if !ok || len(tokens) != 4 {
		return Event{}, fmt.Errorf("%s is not the subject of an event", quote([]byte(subject)))
	}
	if !json.Valid(body) {
		return Event{}, fmt.Errorf("the event on %s has no JSON: %s", quote([]byte(subject)), quote(body))
	}
	get := header.Get
	at, err := time.Parse(time.RFC3339Nano, get(headerTime))
	if err != nil {
		return Event{}, fmt.Errorf("the event on %s has no time: %w", quote([]byte(subject)), err)
	}
	return Event{
		SpecVersion: get(headerSpec), ID: get(headerID), Source: get(headerSource),
		Type: get(headerType), Key: tokens[3], Time: at, ContentType: get(headerContent),
		Severity: tokens[0], Data: body,
	}, nil
}

// The bodies.
type (
	refillBody struct {
		Node      string          `json:"node"`
		Tag       string          `json:"tag"`
		First     int64           `json:"first,string"`
		Last      int64           `json:"last,string"`
		Step      int64           `json:"step"`
		Cause     allocator.Cause `json:"cause"`
		ElapsedMS float64         `json:"elapsed_ms"`
	}
	refillFailedBody struct {
		Node  string `json:"node"`
		Tag   string `json:"tag"`
		Error string `json:"error"`
		Left  int64  `json:"left"`
	}
	starvedBody struct {
		Node    string `json:"node"`
		Tag     string `json:"tag"`
		Waiting int    `json:"waiting"`
	}
	regressedBody struct {
		Node string `json:"node"`
		Tag  string `json:"tag"`
		Got  int64  `json:"got,string"`
		Seen int64  `json:"seen,string"`
	}
	recoveredBody struct {
		Node    string `json:"node"`
		Tag     string `json:"tag"`
		Episode string `json:"episode"` // what is over
	}
	backwardsBody struct {
		Node     string           `json:"node"`
		Worker   int64            `json:"worker"`
		OffsetMS int64            `json:"offset_ms"`
		LastMS   int64            `json:"last_ms"`
		NowMS    int64            `json:"now_ms"`
		Action   snowflake.Action `json:"action"`
	}
	skewedBody struct {
		Node        string `json:"node"`
		NowMS       int64  `json:"now_ms"`
		RecordedMS  int64  `json:"recorded_ms,omitempty"` // by the own last run, or the monotonic clock
		PeersMS     int64  `json:"peers_ms,omitempty"`
		ThresholdMS int64  `json:"threshold_ms"`
	}
	workerBody struct {
		Node            string `json:"node"`
		Worker          int64  `json:"worker"`
		Registry        string `json:"registry"`
		ReservedUntilMS int64  `json:"reserved_until_ms"`
	}
	endingBody struct {
		Node   string `json:"node"`
		Worker int64  `json:"worker"`
		EndMS  int64  `json:"end_ms"`
	}
	workerRecoveredBody struct {
		Node    string `json:"node"`
		Worker  int64  `json:"worker"`
		Episode string `json:"episode"` // what is over
	}
	tagBody struct {
		Node string `json:"node"`
		TagRecord
	}
	nodeBody struct {
		Node    string            `json:"node"`
		Version string            `json:"version"`
		Address string            `json:"address"` // of the NATS server
		Config  map[string]string `json:"config"`  // without secrets
	}
)

// allocatorEvent returns the message of an event of the allocator.
func allocatorEvent(node string, e allocator.Event) *nats.Msg {
	switch e := e.(type) {
	case allocator.Refilled:
		ms := float64(e.Elapsed.Microseconds()) / 1000
		return newEvent(info, "segment.refill", e.Tag, node, refillBody{node, e.Tag, e.First, e.Last, e.Step, e.Cause, ms})
	case allocator.RefillFailed:
		return newEvent(alert, "segment.refill_failed", e.Tag, node, refillFailedBody{node, e.Tag, e.Err.Error(), e.Left})
	case allocator.Starved:
		return newEvent(alert, "segment.starved", e.Tag, node, starvedBody{node, e.Tag, e.Waiting})
	case allocator.Regressed:
		return newEvent(alert, "segment.regressed", e.Tag, node, regressedBody{node, e.Tag, e.Got, e.Seen})
	case allocator.Recovered:
		return newEvent(info, "segment.recovered", e.Tag, node, recoveredBody{node, e.Tag, e.Episode})
	default:
		panic(fmt.Sprintf("bus: unknown event %T", e))
	}
}

// snowflakeEvent returns the message of an event of snowflakes.
func snowflakeEvent(node, registry string, e snowflake.Event) *nats.Msg {
	of := func(severity, kind string, h snowflake.Held) *nats.Msg {
		return newEvent(severity, kind, key(h.Worker), node, workerBody{node, h.Worker, registry, h.ReservedUntil})
	}
	switch e := e.(type) {
	case snowflake.ClockBackwards:
		return newEvent(alert, "clock.backwards", key(e.Worker), node, backwardsBody{node, e.Worker, e.Offset, e.Last, e.Now, e.Action})
	case snowflake.ClockSkewed:
		body := skewedBody{Node: node, NowMS: e.Now, PeersMS: e.Peers, ThresholdMS: e.Threshold.Milliseconds()}
		if e.Peers == 0 {
			body.RecordedMS = cmp.Or(e.Recorded, e.Expected)
		}
		return newEvent(alert, "clock.skewed", node, node, body)
	case snowflake.WorkerAcquired:
		return of(info, "worker.acquired", e.Held)
	case snowflake.WorkerReleased:
		return of(info, "worker.released", e.Held)
	case snowflake.WorkerLost:
		return of(alert, "worker.lost", e.Held)
	case snowflake.WorkerExpiring:
		return of(alert, "worker.expiring", e.Held)
	case snowflake.Ending:
		return newEvent(alert, "worker.ending", key(e.Worker), node, endingBody{node, e.Worker, e.End})
	case snowflake.Recovered:
		kind, about := "worker.recovered", key(e.Worker)
		switch e.Episode {
		case snowflake.EpisodeBackwards:
			kind = "clock.recovered"
		case snowflake.EpisodeSkewed:
			kind, about = "clock.recovered", node
		}
		return newEvent(info, kind, about, node, workerRecoveredBody{node, e.Worker, e.Episode})
	default:
		panic(fmt.Sprintf("bus: unknown event %T", e))
	}
}

// key is a worker's number as the last token of an event's subject.
func key(worker int64) string { return strconv.FormatInt(worker, 10) }
