package gateway

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/leafbus/leafbus/internal/wire"
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
	s := serve(t, &fakeGenerator{}, func(cfg *Config) { cfg.JS = jetStream(t, nc) })
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
		strict.MaxID < 7 || strict.Buffers[0].Taken < 6 ||
		len(strict.Buffers[0].Segments) != 0 {
		t.Errorf("%+v", strict)
	}
	if tag := v.Tags[1]; tag.Tag != "order" || !tag.Stored || tag.MaxID != 501 || tag.Step != 500 ||
		tag.Order != "" || tag.Buffers[0].Node != "bustest" ||
		tag.Buffers[0].Segments[0].Last != 500 || tag.Buffers[0].Segments[0].Next < 4 {
		t.Errorf("%+v", tag)
	}
	for query, want := range map[string]string{
		"tags?q=der": "order shop.order ", "tags?after=order": "shop.order ",
		"busiest": "invoice order shop.order ", // the unused one last
	} {
		got := ""
		v := read[tagsView](t, s, "/dashboard/"+query)
		for _, tag := range v.Tags {
			got += tag.Tag + " "
		}
		if got != want || v.Problem != "" || v.Next != "" {
			t.Errorf("%s: %q, next %q, %s; want %q", query, got, v.Next, v.Problem, want)
		}
	}
	nc.Close()
	s = serve(t, &fakeGenerator{}, func(cfg *Config) { cfg.JS = jetStream(t, nc) }) // it has no answers yet
	if o := read[overview](t, s, "/dashboard/overview"); nodes(o) != "test " || !strings.Contains(o.Problem, "closed") {
		t.Errorf("without NATS: %+v", o)
	}
	for _, path := range []string{"/dashboard/tags", "/dashboard/busiest"} {
		if v := read[tagsView](t, s, path); len(v.Tags) != 0 || v.Problem == "" {
			t.Errorf("without NATS: %+v", v)
		}
	}
}

// However many ask at a time, and how often: one question is asked in the time that its answer is kept.
func TestSharedAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		const takes, keep = time.Second, 5 * time.Second
		s := newAnswers(keep, func(context.Context, string) int64 {
			time.Sleep(takes)
			return asked.Add(1)
		})
		for range 50 {
			go s.get(t.Context(), "question")
		}
		synctest.Wait() // one of them asks
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(takes/2, leave)
		if got := s.get(gone, "question"); got != 0 {
			t.Errorf("a caller that has gone gets %d", got)
		}
		for _, c := range []struct {
			after  time.Duration
			answer int64
		}{{takes / 2, 1}, {keep - 1, 1}, {1, 2}, {keep - 1, 2}, {1, 3}} {
			time.Sleep(c.after)
			if got := s.get(t.Context(), "question"); got != c.answer {
				t.Errorf("answer %d, want %d", got, c.answer)
			}
		}
		synctest.Wait()
	})
}

// The page shows the latest events of the stream, each once, also of a stream that was made again.
func TestLatestEvents(t *testing.T) {
	t.Parallel()
	g := bustest.Start(t, "order")
	js := jetStream(t, g.Conn())
	stream := func() bool {
		_, err := js.Stream(t.Context(), events.Stream)
		return err == nil
	}
	publish := func(from, to int) {
		t.Helper()
		for i := from; i <= to; i++ {
			id := fmt.Sprint(i)
			msg := nats.NewMsg("leaf.events.alert.segment.starved.a" + id)
			msg.Data = []byte(`{"node":"n","tag":"a","waiting":1}`)
			msg.Header.Set(wire.HeaderID, id)
			msg.Header.Set(wire.HeaderTime, time.Now().Format(time.RFC3339Nano))
			if _, err := js.PublishMsg(t.Context(), msg); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := serve(t, &fakeGenerator{}, func(c *Config) { c.JS = js })
	shows := func(newest string, least int) {
		t.Helper()
		testkit.Eventually(t, "the event "+newest, func() bool {
			v := read[latestView](t, s, "/dashboard/events")
			ids := make(map[string]bool)
			for _, e := range v.Events {
				ids[e.ID] = true
			}
			return v.Problem == "" && len(v.Events) >= least && v.Events[0].ID == newest && len(ids) == len(v.Events) && len(ids) <= maxShown
		})
	}
	testkit.Eventually(t, "the stream is there", stream)
	publish(1, 2)
	shows("2", 2)
	publish(3, 3)
	shows("3", 3)
	publish(4, maxShown+7)
	shows("107", maxShown)
	if err := js.DeleteStream(t.Context(), events.Stream); err != nil {
		t.Fatal(err)
	}
	if v := read[latestView](t, s, "/dashboard/events"); v.Problem != "" {
		t.Errorf("without a stream, which the next event makes: %s", v.Problem)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: events.Stream, Subjects: []string{events.Subjects}}); err != nil {
		t.Fatal(err)
	}
	publish(108, 108)
	shows("108", 1)
}
