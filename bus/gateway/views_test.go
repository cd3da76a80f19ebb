package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/bustest"
	"github.com/leafbus/leafbus/internal/testkit"
)

// read fetches a view, which must be there.
func read[T any](t *testing.T, s *Server, path string) T {
	t.Helper()
	w := get(s, path)
	if w.Code != 200 || w.Header().Get("Cache-Control") != "no-store" {
		t.Fatalf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
	}
	return unmarshal[T](t, w.Body)
}

// A strict tag: what the page shows of it in the list, and among the busiest.
func TestViewsOfStrictTag(t *testing.T) {
	t.Parallel()
	c := bustest.Start(t, "order:500").Client()
	if _, err := c.CreateTag(t.Context(), bus.TagCreate{Tag: "invoice", Order: bus.OrderStrict}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Take(t.Context(), "invoice", 6); err != nil {
		t.Fatal(err)
	}
	s := serve(t, &fakeGenerator{}, func(cfg *Config) { cfg.Client = c })
	isStrict := func(b bus.Buffer) bool {
		return b.Order == bus.OrderStrict && b.Writes == 1 && b.Requests == 1 && b.Taken == 6 && b.Left == 0 && b.Step == 0 &&
			len(b.Segments) == 0 && b.State == "ok"
	}
	all := read[tagsView](t, s, "/dashboard/tags").Tags
	if len(all) != 2 || all[0].Order != bus.OrderStrict || all[0].Step != 0 || all[0].MaxID != 7 ||
		len(all[0].Buffers) != 1 || !isStrict(all[0].Buffers[0].Buffer) || all[1].Order != bus.OrderTrend {
		t.Errorf("%+v", all)
	}
	if b := read[overview](t, s, "/dashboard/overview").Nodes[0].Busiest; len(b) != 1 || !isStrict(b[0]) {
		t.Errorf("%+v", b)
	}
}

// What the page shows comes from the bus, and of the own generator also without it.
func TestViews(t *testing.T) {
	t.Parallel()
	other := bustest.Start(t, "order:500", "shop.order")
	if _, err := other.Client().Take(t.Context(), "order", 3); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(other.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	s := serve(t, &fakeGenerator{}, func(c *Config) { c.Client = bus.NewClient(nc) })

	nodes := func(o overview) (list string) {
		for _, n := range o.Nodes {
			list += n.Node + " "
		}
		return list
	}
	o := read[overview](t, s, "/dashboard/overview")
	if nodes(o) != "bustest test " || o.Node != "test" || o.Problem != "" || o.Nodes[0].Busiest[0].Left != 497 {
		t.Errorf("%+v", o)
	}
	if again := read[overview](t, s, "/dashboard/overview"); again.UnixMS != o.UnixMS {
		t.Error("the generators were asked again at once")
	}
	if s.views.overview.costly || s.views.latest.costly {
		t.Error("what moves is shown for longer than a second, as asking takes half of one")
	}
	v := read[tagsView](t, s, "/dashboard/tags?q=der")
	if len(v.Tags) != 2 || v.Problem != "" || v.Next != "" {
		t.Fatalf("%+v", v)
	}
	if tag := v.Tags[0]; tag.Tag != "order" || !tag.Stored || tag.MaxID != 501 || tag.Step != 500 || len(tag.Buffers) != 1 ||
		tag.Buffers[0].Node != "bustest" || tag.Buffers[0].Segments[0] != (bus.Segment{First: 1, Last: 500, Next: 4}) {
		t.Errorf("%+v", tag)
	}
	if tag := v.Tags[1]; tag.Tag != "shop.order" || !tag.Stored || len(tag.Buffers) != 0 {
		t.Errorf("%+v", tag)
	}
	if v := read[tagsView](t, s, "/dashboard/tags?limit=1"); len(v.Tags) != 1 || v.Next != "order" {
		t.Errorf("%+v", v)
	}
	if v := read[tagsView](t, s, "/dashboard/tags?after=order"); len(v.Tags) != 1 || v.Tags[0].Tag != "shop.order" {
		t.Errorf("%+v", v)
	}
	if v := read[tagsView](t, s, "/dashboard/tags?name=shop.order&name=order&name=none"); len(v.Tags) != 3 || v.Problem != "" ||
		v.Tags[0].Tag != "shop.order" || !v.Tags[0].Stored || v.Tags[1].MaxID != 501 || v.Tags[1].Step != 500 || v.Tags[1].Buffers == nil || v.Tags[2].Stored || v.Tags[2].Unknown {
		t.Errorf("%+v", v)
	}
	if w := get(s, "/dashboard/tags?name="+strings.Repeat("&name=a", maxNames)); w.Code != 400 {
		t.Errorf("more than %d names: %d %s", maxNames, w.Code, w.Body)
	}
	type workersView struct {
		bus.WorkersPage
		Problem string
	}
	if v := read[workersView](t, s, "/dashboard/workers"); v.Registry != "kv" || len(v.Workers) != 1 || v.Workers[0].Node != "bustest" || v.Problem != "" {
		t.Errorf("%+v", v)
	}

	nc.Close()
	s.views.overview.until = time.Time{}
	if o := read[overview](t, s, "/dashboard/overview"); nodes(o) != "test " || !strings.Contains(o.Problem, "closed") {
		t.Errorf("without NATS: %+v", o)
	}
	if v := read[tagsView](t, s, "/dashboard/tags"); len(v.Tags) != 0 || v.Problem == "" {
		t.Errorf("without NATS: %+v", v)
	}
	if v := read[tagsView](t, s, "/dashboard/tags?name=new"); len(v.Tags) != 1 || !v.Tags[0].Unknown || v.Problem == "" {
		t.Errorf("without NATS: %+v", v)
	}
	if v := read[workersView](t, s, "/dashboard/workers"); v.Workers == nil || v.Problem == "" {
		t.Errorf("without NATS: %+v", v)
	}
}

// Who searches while others do waits for its turn.
func TestSearchesAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, &fakeGenerator{})
	for range maxSearches {
		s.views.searches.taken <- struct{}{}
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if w := get(s, "/dashboard/tags", func(r *http.Request) { *r = *r.WithContext(gone) }); w.Code != 429 || unmarshal[failure](t, w.Body).Exception != "overloaded" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	answered := make(chan int)
	go func() { answered <- get(s, "/dashboard/tags").Code }()
	select {
	case code := <-answered:
		t.Errorf("%d before its turn", code)
	case <-time.After(50 * time.Millisecond):
	}
	<-s.views.searches.taken
	if code := <-answered; code != 200 || len(s.views.searches.taken) != maxSearches-1 {
		t.Errorf("%d, %d are under way", code, len(s.views.searches.taken))
	}
}

// A generator that misses a question is not gone, and one that misses all for a while is.
func TestGeneratorsThatAreThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newViews(Config{})
		var state overview
		v.overview = newShared(func() overview { return state })
		answer := func(problem string, nodes ...string) func(string) bool {
			time.Sleep(fresh)
			state = overview{Problem: problem}
			for _, node := range nodes {
				state.Nodes = append(state.Nodes, bus.State{Node: node})
			}
			return v.running()
		}
		if here := answer("", "a"); !here("a") || here("b") {
			t.Error("not those that answer are there")
		}
		if here := answer("", "b"); !here("a") || !here("b") {
			t.Error("one that misses a question is gone")
		}
		if answer("NATS is away", "b") != nil {
			t.Error("without NATS it is known who is there")
		}
		time.Sleep(patience)
		if here := answer("", "b"); here("a") || !here("b") {
			t.Error("one that does not answer any more is there")
		}
	})
}

// However many ask at a time, and how often: one question a second, of a costly one
// in the time that twenty like it take.
func TestSharedAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		takes := fresh / 100
		s := newCostly(func() int64 {
			time.Sleep(takes)
			return asked.Add(1)
		})
		for range 50 {
			go func() {
				if got := s.get(); got != 1 {
					t.Errorf("answer %d", got)
				}
			}()
		}
		want := func(after time.Duration, answer int64) {
			t.Helper()
			time.Sleep(after)
			if got := s.get(); got != answer {
				t.Errorf("answer %d, want %d", got, answer)
			}
		}
		want(takes, 1)
		want(fresh-1, 1)
		takes = fresh / 10
		want(1, 2)
		want(costly*takes-1, 2)
		takes = time.Minute // as if nobody answered
		want(1, 3)
		want(staleness-1, 3)
		want(1, 4)
		s.costly, takes = false, fresh/2
		want(staleness, 5)
		want(fresh-1, 5)
		want(1, 6)
		synctest.Wait()
	})
}

// alertMessage is the message of an alert, or of its end.
func alertMessage(subject, id string, after time.Duration, body string) *nats.Msg {
	msg := nats.NewMsg(subject)
	tokens := strings.SplitN(subject, ".", 6)
	for name, value := range map[string]string{
		"ce-id": id, "Nats-Msg-Id": id, "ce-source": "/leaf/n", "ce-type": "leaf." + tokens[3] + "." + tokens[4], "ce-subject": tokens[5],
		"ce-time": time.Now().Add(after).UTC().Format(time.RFC3339Nano),
	} {
		msg.Header[name] = []string{value}
	}
	msg.Data = []byte(body)
	return msg
}

// The feed knows the alerts from before its start, and hears what comes.
func TestFeed(t *testing.T) {
	t.Parallel()
	g := bustest.Start(t, "order")
	js, err := jetstream.New(g.Conn())
	if err != nil {
		t.Fatal(err)
	}
	tell := func(subject, id string, after time.Duration, body string) {
		t.Helper()
		if _, err := js.PublishMsg(t.Context(), alertMessage(subject, id, after, body)); err != nil {
			t.Fatal(err)
		}
	}
	const starved, recovered = "leaf.events.alert.segment.starved.", "leaf.events.info.segment.recovered."
	testkit.Eventually(t, "the stream is there", func() bool {
		_, err := js.Stream(t.Context(), bus.EventStream)
		return err == nil
	})
	tell(starved+"a", "1", -time.Hour, `{"node":"n","tag":"a","waiting":1}`)
	tell(recovered+"a", "2", -time.Minute, `{"node":"n","tag":"a","episode":"starved"}`)
	tell(starved+"b.c", "3", -time.Minute, `{"node":"n","tag":"b.c","waiting":2}`)

	s := serve(t, &fakeGenerator{}, func(c *Config) { c.Client, c.Listener = g.Client(), listen(t) })
	run(t, s)
	f := s.views.feed
	testkit.Eventually(t, "the alerts from before are there", func() bool { return len(f.view(nil).Alerts) == 2 })
	if v := f.view(nil); v.Alerts[0].ID != "3" || v.Lasting != 1 || v.Alerts[1].ID != "1" || v.Alerts[1].Over.IsZero() || v.Problem != "" {
		t.Errorf("%+v", v)
	}
	// Nobody of the name n runs.
	if v := read[feedView](t, s, "/dashboard/feed"); v.Lasting != 0 || v.Gone != 1 || len(v.Causes) != 1 || !v.Causes[0].Gone ||
		v.Causes[0].Alerts[0].Key != "b.c" || v.Ended != 1 || v.Past[0].Key != "a" {
		t.Errorf("%+v", v)
	}
	testkit.Eventually(t, "an event is heard", func() bool { // as soon as it listens
		tell(recovered+"b.c", nats.NewInbox(), 0, `{"node":"n","tag":"b.c","episode":"starved"}`)
		return len(f.view(nil).Events) > 0
	})
	if v := f.view(nil); v.Lasting != 0 || v.Events[0].Type != "leaf.segment.recovered" || v.Events[0].Node != "n" || v.Events[0].Key != "b.c" {
		t.Errorf("%+v", v)
	}
	// Without the stream, it still hears.
	if err := js.DeleteStream(t.Context(), bus.EventStream); err != nil {
		t.Fatal(err)
	}
	if err := g.Conn().PublishMsg(alertMessage(starved+"d", "9", time.Second, `{"node":"n","tag":"d","waiting":7}`)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the alert is heard", func() bool { return f.view(nil).Lasting == 1 })

	w := httptest.NewRecorder()
	write(w, 200, f.view(nil))
	var shape map[string]json.RawMessage
	if err := json.Unmarshal(w.Body.Bytes(), &shape); err != nil || len(shape) != 7 {
		t.Errorf("%s: %v", w.Body, err)
	}
}
