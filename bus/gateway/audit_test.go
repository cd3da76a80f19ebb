package gateway

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/bustest"
	"github.com/leafbus/leafbus/internal/testkit"
)

// forge publishes a refill event that no generator has published.
func forge(t *testing.T, js jetstream.JetStream, tag, node string, first, last int64) {
	t.Helper()
	msg := alertMessage("leaf.events.info.segment.refill."+tag, nats.NewInbox(), 0, fmt.Sprintf(
		`{"node":%q,"tag":%q,"first":"%d","last":"%d","step":1000,"cause":"demand","elapsed_ms":1}`, node, tag, first, last))
	if _, err := js.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
}

// audited returns a server on a generator that has claimed 1 to 500 of order, which its event reports, and nothing of quiet.
func audited(t *testing.T) (*Server, jetstream.JetStream) {
	t.Helper()
	g := bustest.Start(t, "order:500", "quiet", "busy:10")
	if _, err := g.Client().Take(t.Context(), "order", 3); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(g.Conn())
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, &fakeGenerator{}, func(c *Config) { c.Client, c.JS = g.Client(), js })
	testkit.Eventually(t, "the event of the claim", func() bool { return read[bus.TagAudit](t, s, "/dashboard/audit?tag=order").Events == 1 })
	return s, js
}

// Audits and traces of one installation, before and after an event that no generator has published.
func TestAudits(t *testing.T) {
	t.Parallel()
	s, js := audited(t)
	of := func(tag string) bus.TagAudit { return read[bus.TagAudit](t, s, "/dashboard/audit?tag="+tag) }
	a := of("order")
	if a.End != 501 || a.MaxID != 501 || a.Reported != 500 || a.Lost != 0 || a.Unreported != 0 || len(a.Contradictions) != 0 ||
		a.Last == nil || a.Last.Last != 500 || !slices.Equal(a.Shares,
		[]bus.Share{{Node: "bustest", Refills: 1, IDs: 500}}) {
		t.Errorf("%+v", a)
	}
	if a := of("quiet"); a.Events != 0 || a.Reported != 0 || a.Shares == nil {
		t.Errorf("%+v", a)
	}
	all := read[auditView](t, s, "/dashboard/audit")
	if all.Tags != 3 || all.Workers != 1 || all.Found != 0 || all.Reported != 500 || all.Contradictions == nil ||
		len(all.FirstTags) != 3 || all.FirstTags[0].Tag != "busy" || all.FirstWorkers[0].Node != "bustest" {
		t.Errorf("%+v", all)
	}
	for path, want := range map[string]bus.TraceOutcome{
		"tag=order&id=500": bus.Claimed, "snowflake=4611686018427387904": bus.Impossible,
	} {
		if got := read[bus.Trace](t, s, "/dashboard/trace?"+path); got.Outcome != want || got.Message == "" {
			t.Errorf("%s: %+v", path, got)
		}
	}

	forge(t, js, "order", "forger", 400, math.MaxInt64-1)
	for path, found := range map[string]func(body io.Reader) bool{
		"?tag=order": func(body io.Reader) bool {
			c := unmarshal[bus.TagAudit](t, body).Contradictions
			return len(c) == 2 && c[0].Kind != c[1].Kind
		},
		"": func(body io.Reader) bool {
			v := unmarshal[auditView](t, body)
			return v.Found == 2 && v.FirstTags[0].Tag == "order" && v.FirstTags[0].Contradictions == 2
		},
	} {
		body := get(s, "/dashboard/audit"+path).Body.String()
		// A reader whose numbers are float64 gets all digits of all counts of IDs.
		if !found(strings.NewReader(body)) || strings.Contains(body, `"reported":9`) ||
			!strings.Contains(body, `"reported":"9223372036854775806"`) {
			t.Error(body)
		}
	}
}

func TestBadQuestionsToAudits(t *testing.T) {
	t.Parallel()
	s, _ := audited(t)
	for path, want := range map[string]string{
		"audit?tag=":                     "400 bad_tag",
		"audit?tag=a..b":                 "400 bad_tag",
		"audit?tag=none":                 "404 unknown_tag",
		"trace":                          "400 bad_request",
		"trace?tag=order":                "400 bad_request",
		"trace?tag=order&id=0":           "400 bad_request",
		"trace?tag=order&id=x":           "400 bad_request",
		"trace?tag=none&id=1":            "404 unknown_tag",
		"trace?tag=order&snowflake=1":    "400 bad_request",
		"trace?snowflake=ten":            "400 bad_request",
		"trace?tag=order&id=" + tooLarge: "400 bad_request",
	} {
		w := get(s, "/dashboard/"+path)
		if f := unmarshal[failure](t, w.Body); fmt.Sprint(w.Code, " ", f.Exception) != want || f.Message == "" {
			t.Errorf("%s: %d %+v, want %s", path, w.Code, f, want)
		}
	}
}

const tooLarge = "9223372036854775808"

// stuck is a JetStream that does not answer.
type stuck struct {
	jetstream.JetStream
	asked chan struct{}
}

func (s stuck) Stream(ctx context.Context, _ string) (jetstream.Stream, error) {
	s.asked <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// wants reports an answer that is not this error.
func wants(t *testing.T, w *httptest.ResponseRecorder, code int, reason bus.Reason) {
	t.Helper()
	if f := unmarshal[failure](t, w.Body); w.Code != code || f.Exception != string(reason) || f.Message == "" {
		t.Errorf("%d %+v, want %d %s", w.Code, f, code, reason)
	}
}

// One audit of all tags runs at a time. It ends in time for an answer, and when its caller goes.
func TestAuditsAreBounded(t *testing.T) {
	t.Parallel()
	if auditTimeout >= defaultLimits.write {
		t.Errorf("an audit may take %v, and its answer must be written within %v", auditTimeout, defaultLimits.write)
	}
	synctest.Test(t, func(t *testing.T) {
		js := stuck{asked: make(chan struct{}, 10)}
		mux := http.NewServeMux()
		newViews(Config{Client: bus.NewClient(nil), JS: js}).register(mux)
		start := func(ctx context.Context) chan *httptest.ResponseRecorder {
			answered := make(chan *httptest.ResponseRecorder, 1)
			go func() {
				answered <- get(mux, "/dashboard/audit", func(r *http.Request) { *r = *r.WithContext(ctx) })
			}()
			<-js.asked
			return answered
		}
		begun := time.Now()
		answered := start(t.Context())
		wants(t, get(mux, "/dashboard/audit"), 429, bus.Overloaded)
		wants(t, <-answered, 504, bus.TimedOut)
		if took := time.Since(begun); took > auditTimeout {
			t.Errorf("an audit without JetStream took %v", took)
		}
		ctx, leave := context.WithCancel(t.Context())
		answered = start(ctx)
		leave()
		<-answered
		wants(t, <-start(t.Context()), 504, bus.TimedOut) // the next one begins
	})
}

// A server that stops does not wait for the end of an audit.
func TestStopEndsAudits(t *testing.T) {
	t.Parallel()
	js := stuck{asked: make(chan struct{}, 1)}
	s := serve(t, &fakeGenerator{}, func(c *Config) { c.JS = js })
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() { answered <- get(s, "/dashboard/audit") }()
	<-js.asked
	s.views.stop()
	wants(t, <-answered, 503, bus.Draining)
}
