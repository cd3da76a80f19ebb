package gateway

import (
	"context"
	"fmt"
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
	"github.com/leafbus/leafbus/bus/audit"
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

func TestAuditOfATag(t *testing.T) {
	t.Parallel()
	s, js := audited(t)
	a := read[bus.TagAudit](t, s, "/dashboard/audit?tag=order")
	if a.End != 501 || a.MaxID != 501 || a.Reported != 500 || a.Lost != 0 || a.Unreported != 0 || len(a.Contradictions) != 0 ||
		a.Last == nil || a.Last.Last != 500 || len(a.Shares) != 1 || a.Shares[0] != (bus.Share{Node: "bustest", Refills: 1, IDs: 500}) {
		t.Errorf("%+v", a)
	}
	if a := read[bus.TagAudit](t, s, "/dashboard/audit?tag=quiet"); a.Events != 0 || a.Reported != 0 || a.Shares == nil {
		t.Errorf("%+v", a)
	}
	c, err := s.cfg.Client.DeleteTag(t.Context(), "busy")
	if err != nil {
		t.Fatal(c, err)
	}
	if a := read[bus.TagAudit](t, s, "/dashboard/audit?tag=busy"); a.MaxID != 0 || len(a.Contradictions) != 0 {
		t.Errorf("of a deleted tag: %+v", a)
	}
	forge(t, js, "order", "forger", 400, math.MaxInt64-1)
	a = read[bus.TagAudit](t, s, "/dashboard/audit?tag=order")
	kinds := make(map[bus.ContradictionKind]bool)
	for _, c := range a.Contradictions {
		kinds[c.Kind] = true
		if !strings.Contains(c.Message, "forger") {
			t.Errorf("who claimed is not in %q", c.Message)
		}
	}
	if a.Reported != math.MaxInt64-1 || len(kinds) != 2 || !kinds[bus.Overlap] || !kinds[bus.Unclaimed] {
		t.Errorf("%+v", a)
	}
	// A reader whose numbers are float64 gets all digits of all counts of IDs.
	if body := get(s, "/dashboard/audit?tag=order").Body.String(); !strings.Contains(body, `"reported":"9223372036854775806"`) {
		t.Error(body)
	}
}

func TestTraces(t *testing.T) {
	t.Parallel()
	s, _ := audited(t)
	for path, want := range map[string]bus.TraceOutcome{
		"tag=order&id=1": bus.Claimed, "tag=order&id=500": bus.Claimed, "tag=order&id=501": bus.NotClaimed, "tag=order&id=9223372036854775807": bus.NotClaimed,
		"snowflake=4611686018427387904": bus.Impossible,
	} {
		if got := read[bus.Trace](t, s, "/dashboard/trace?"+path); got.Outcome != want || got.Message == "" || !strings.HasSuffix(path, fmt.Sprint(int64(got.ID))) {
			t.Errorf("%s: %+v", path, got)
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
		"trace?id=1":                     "400 bad_request",
		"trace?tag=order&id=0":           "400 bad_request",
		"trace?tag=order&id=-1":          "400 bad_request",
		"trace?tag=order&id=1.5":         "400 bad_request",
		"trace?tag=order&id=x":           "400 bad_request",
		"trace?tag=a..b&id=1":            "400 bad_tag",
		"trace?tag=none&id=1":            "404 unknown_tag",
		"trace?tag=order&snowflake=1":    "400 bad_request",
		"trace?id=1&snowflake=1":         "400 bad_request",
		"trace?snowflake=":               "400 bad_request",
		"trace?snowflake=ten":            "400 bad_request",
		"trace?tag=order&id=" + tooLarge: "400 bad_request",
		"trace?snowflake=" + tooLarge:    "400 bad_request",
	} {
		w := get(s, "/dashboard/"+path)
		if f := unmarshal[failure](t, w.Body); fmt.Sprint(w.Code, " ", f.Exception) != want || f.Message == "" {
			t.Errorf("%s: %d %+v, want %s", path, w.Code, f, want)
		}
	}
}

const tooLarge = "9223372036854775808"

func TestAuditOfAllTags(t *testing.T) {
	t.Parallel()
	s, js := audited(t)
	a := read[auditView](t, s, "/dashboard/audit")
	if a.Tags != 3 || a.Workers != 1 || a.Found != 0 || a.Reported != 500 || a.Events < 1 || a.Since.IsZero() || a.Contradictions == nil ||
		len(a.FirstTags) != 3 || a.FirstTags[0].Tag != "busy" || len(a.FirstWorkers) != 1 || a.FirstWorkers[0].Node != "bustest" {
		t.Errorf("%+v", a)
	}
	forge(t, js, "order", "forger", 1, 500)
	a = read[auditView](t, s, "/dashboard/audit")
	if a.Found != 1 || len(a.Contradictions) != 1 || a.Contradictions[0].Kind != bus.Overlap ||
		a.FirstTags[0].Tag != "order" || a.FirstTags[0].Contradictions != 1 || a.FirstTags[1].Tag != "busy" {
		t.Errorf("%+v", a)
	}
}

// However many tags, workers and contradictions there are, the answer has a bounded number of them, and what is wrong is among them.
func TestAuditIsBounded(t *testing.T) {
	t.Parallel()
	report := audit.Report{Contradictions: []bus.Contradiction{}}
	many := 2 * max(maxAudited, maxContradictions)
	for i := range many {
		c := bus.Contradiction{Kind: bus.Overlap, Tag: fmt.Sprint(i)}
		report.Contradictions = append(report.Contradictions, c)
		tag := bus.TagAudit{TagClaims: bus.TagClaims{Tag: c.Tag}, Skipped: math.MaxInt64 / 2}
		worker := bus.WorkerAudit{Worker: bus.Worker{Worker: int64(i)}}
		if i == many-1 {
			tag.Contradictions, worker.Contradictions = []bus.Contradiction{c}, []bus.Contradiction{c, c}
		}
		report.Tags, report.Workers = append(report.Tags, tag), append(report.Workers, worker)
	}
	a := newAuditView(&report, time.Second)
	if a.Tags != many || a.Workers != many || a.Found != many || a.ElapsedMS != 1000 ||
		len(a.FirstTags) != maxAudited || len(a.FirstWorkers) != maxAudited || len(a.Contradictions) != maxContradictions {
		t.Errorf("%d of %d tags, %d of %d workers, %d of %d contradictions",
			len(a.FirstTags), a.Tags, len(a.FirstWorkers), a.Workers, len(a.Contradictions), a.Found)
	}
	if a.FirstTags[0].Tag != fmt.Sprint(many-1) || a.FirstTags[0].Contradictions != 1 || a.FirstTags[1].Tag != "0" ||
		a.FirstWorkers[0].Worker.Worker != int64(many-1) || a.FirstWorkers[0].Contradictions != 2 || a.FirstWorkers[1].Worker.Worker != 0 {
		t.Errorf("%+v, %+v", a.FirstTags[:2], a.FirstWorkers[:2])
	}
	if a.Skipped != math.MaxInt64 {
		t.Errorf("the sum is %d", a.Skipped)
	}
}

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
		js := endless{asked: make(chan struct{}, 10)}
		mux := http.NewServeMux()
		v := newViews(Config{Client: bus.NewClient(nil), JS: js})
		v.register(mux)
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
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("the second audit was refused after %v", waited)
		}
		wants(t, <-answered, 504, bus.TimedOut)
		if took := time.Since(begun); took > auditTimeout {
			t.Errorf("an audit without JetStream took %v", took)
		}
		begun = time.Now()
		slow := v.audits.bound(func(ctx context.Context, _ *http.Request) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
		wants(t, get(slow, "/dashboard/audit"), 504, bus.TimedOut)
		if took := time.Since(begun); took != auditTimeout {
			t.Errorf("a slow audit took %v", took)
		}

		ctx, leave := context.WithCancel(t.Context())
		answered = start(ctx)
		leave()
		<-answered
		<-time.After(time.Second)
		answered = start(t.Context()) // the next one begins
		wants(t, <-answered, 504, bus.TimedOut)
	})
}

// A server that stops does not wait for the end of an audit.
func TestStopEndsAudits(t *testing.T) {
	t.Parallel()
	js := stuck{asked: make(chan struct{}, 1)}
	s := serve(t, &fakeGenerator{}, func(c *Config) { c.Listener, c.JS = listen(t), js })
	url, stop := run(t, s)
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		answer, err := http.Get(url + "/dashboard/audit")
		if err != nil {
			t.Error(err)
			answered <- w
			return
		}
		defer answer.Body.Close()
		w.Code = answer.StatusCode
		_, _ = w.Body.ReadFrom(answer.Body)
		answered <- w
	}()
	<-js.asked
	if err := stop(); err != nil {
		t.Error(err)
	}
	wants(t, <-answered, 503, bus.Draining)
}

// Without NATS the caller reads that nobody answers.
func TestAuditWithoutNATS(t *testing.T) {
	t.Parallel()
	s := serve(t, &fakeGenerator{})
	for _, path := range []string{"/dashboard/audit?tag=order", "/dashboard/trace?tag=order&id=1", "/dashboard/trace?snowflake=1"} {
		wants(t, get(s, path), 503, bus.StoreUnavailable)
	}
}

// A page of another site must not make the browser start audits.
func TestAuditsForOtherSites(t *testing.T) {
	t.Parallel()
	s, _ := audited(t)
	for _, path := range []string{"/dashboard/audit", "/dashboard/audit?tag=order"} {
		for site, code := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200} {
			if w := get(s, path, header("Sec-Fetch-Site", site)); w.Code != code {
				t.Errorf("%s from %s: %d", path, site, w.Code)
			}
		}
	}
}

// Audits need the token, and have the headers of the dashboard.
func TestTokenOfAudits(t *testing.T) {
	t.Parallel()
	s := serve(t, &fakeGenerator{}, func(c *Config) { c.Token = "secret" })
	for _, path := range []string{"/dashboard/audit", "/dashboard/audit?tag=order", "/dashboard/trace?snowflake=1"} {
		w := get(s, path)
		if w.Code != 401 || w.Header().Get("Connection") != "close" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		w = get(s, "/dashboard/trace?snowflake=x", header("Authorization", "Bearer secret"))
		if w.Code != 400 || !slices.Equal(w.Header()["Content-Security-Policy"], policy) || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s with it: %d %v", path, w.Code, w.Header())
		}
	}
}
