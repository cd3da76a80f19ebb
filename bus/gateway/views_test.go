package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/bustest"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/idspace"
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

// What the page shows comes from the bus, and of the own generator also without it.
func TestViews(t *testing.T) {
	t.Parallel()
	other := bustest.Start(t, "order:500", "shop.order")
	nc, err := nats.Connect(other.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c, operator := bus.NewClient(nc), admin.NewClient(nc)
	_, err = operator.CreateTag(t.Context(), admin.TagSpec{Tag: "invoice", Order: idspace.OrderStrict})
	_, err1 := c.Take(t.Context(), "order", 3)
	_, err2 := c.Take(t.Context(), "invoice", 6)
	if err := errors.Join(err, err1, err2); err != nil {
		t.Fatal(err)
	}
	s := serve(t, &fakeGenerator{}, func(cfg *Config) { cfg.Conn = nc })
	nodes := func(o overview) (list string) {
		for _, n := range o.Nodes {
			list += n.Node + " "
		}
		return list
	}
	var o overview
	testkit.Eventually(t, "the other generator answers", func() bool { // on a busy machine it may answer late
		o = read[overview](t, s, "/dashboard/overview")
		return nodes(o) == "bustest test " && len(o.Nodes[0].Busiest) == 2
	})
	if o.Node != "test" || o.Problem != "" {
		t.Errorf("%+v", o)
	}
	// All tags, with what generators have of them; of a strict tag nothing is in memory.
	var v tagsView
	testkit.Eventually(t, "it answers for all tags", func() bool {
		v = read[tagsView](t, s, "/dashboard/tags")
		return len(v.Tags) == 3 && len(v.Tags[0].Buffers) == 1 && len(v.Tags[1].Buffers) == 1
	})
	if v.Problem != "" || v.Next != "" {
		t.Errorf("%+v", v)
	}
	// On a busy machine the client asks a second time, so more may be taken.
	if strict := v.Tags[0]; strict.Tag != "invoice" || strict.Order != idspace.OrderStrict || strict.Step != 0 ||
		strict.MaxID < 7 || strict.Buffers[0].Writes < 1 || strict.Buffers[0].Taken < 6 ||
		len(strict.Buffers[0].Segments) != 0 {
		t.Errorf("%+v", strict)
	}
	if tag := v.Tags[1]; tag.Tag != "order" || !tag.Stored || tag.MaxID != 501 || tag.Step != 500 ||
		tag.Order != "" || tag.Buffers[0].Node != "bustest" ||
		tag.Buffers[0].Segments[0].Last != 500 || tag.Buffers[0].Segments[0].Next < 4 {
		t.Errorf("%+v", tag)
	}
	for query, want := range map[string]string{
		"q=der": "order shop.order ", "limit=1": "invoice ", "after=order": "shop.order ", "name=shop.order&name=order": "shop.order order ",
	} {
		got := ""
		v := read[tagsView](t, s, "/dashboard/tags?"+query)
		for _, tag := range v.Tags {
			got += tag.Tag + " "
		}
		if got != want || v.Problem != "" || (v.Next != "") != (query == "limit=1") {
			t.Errorf("%s: %q, next %q, %s; want %q", query, got, v.Next, v.Problem, want)
		}
	}
	if v := read[tagsView](t, s, "/dashboard/tags?name=none"); len(v.Tags) != 1 || v.Tags[0].Stored ||
		v.Tags[0].Unknown {
		t.Errorf("%+v", v)
	}
	if w := get(s, "/dashboard/tags?name="+strings.Repeat("&name=a", maxNames)); w.Code != 400 {
		t.Errorf("more than %d names: %d %s", maxNames, w.Code, w.Body)
	}
	type workersView struct {
		admin.WorkersPage
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
	if v := read[tagsView](t, s, "/dashboard/tags?name=new"); len(v.Tags) != 1 || !v.Tags[0].Unknown || v.Problem == "" {
		t.Errorf("without NATS: %+v", v)
	}
}

// Who searches while others do waits for its turn.
func TestSearchesAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, &fakeGenerator{})
	for range maxSearches {
		s.views.searches <- struct{}{}
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
	<-s.views.searches
	if code := <-answered; code != 200 || len(s.views.searches) != maxSearches-1 {
		t.Errorf("%d, %d are under way", code, len(s.views.searches))
	}
}

// However many ask at a time, and how often: one question is asked in the time that its answer is kept.
func TestSharedAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		const takes, keep = time.Second, 5 * time.Second
		s := newShared(keep, func() int64 {
			time.Sleep(takes)
			return asked.Add(1)
		})
		for range 50 {
			go s.get()
		}
		for _, c := range []struct {
			after  time.Duration
			answer int64
		}{{takes, 1}, {keep - 1, 1}, {1, 2}, {keep - 1, 2}, {1, 3}} {
			time.Sleep(c.after)
			if got := s.get(); got != c.answer {
				t.Errorf("answer %d, want %d", got, c.answer)
			}
		}
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

// The feed has the latest events, those from before its start too, each once, and hears what comes without the stream.
func TestFeed(t *testing.T) {
	t.Parallel()
	g := bustest.Start(t, "order")
	js, err := jetstream.New(g.Conn())
	if err != nil {
		t.Fatal(err)
	}
	const starved, recovered = "leaf.events.alert.segment.starved.", "leaf.events.info.segment.recovered."
	testkit.Eventually(t, "the stream is there", func() bool {
		_, err := js.Stream(t.Context(), events.Stream)
		return err == nil
	})
	for i := range maxShown + 5 {
		id := fmt.Sprint(i)
		msg := alertMessage(starved+"a"+id, id, -time.Hour, `{"node":"n","tag":"a","waiting":1}`)
		if _, err := js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	s := serve(t, &fakeGenerator{}, func(c *Config) { c.Conn, c.Listener = g.Conn(), listen(t) })
	run(t, s)
	f := s.views.feed
	testkit.Eventually(t, "the last events from before are there", func() bool { return len(f.latest()) == maxShown })
	if err := js.DeleteStream(t.Context(), events.Stream); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the stream is away, so its generator publishes it again
		msg := alertMessage(recovered+"b.c", "end", 0, `{"node":"n","tag":"b.c","episode":"starved"}`)
		if err := g.Conn().PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "an event is heard", func() bool { return f.latest()[0].ID == "end" })
	if v := read[feedView](t, s, "/dashboard/feed"); v.Problem != "" || len(v.Events) != maxShown ||
		v.Events[0].Type != "leaf.segment.recovered" || v.Events[0].Key != "b.c" || v.Events[1].ID != "104" ||
		v.Events[99].ID != "6" {
		t.Errorf("%d events, from %+v to %+v", len(v.Events), v.Events[0], v.Events[len(v.Events)-1])
	}
}
