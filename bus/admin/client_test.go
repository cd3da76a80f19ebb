package admin_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// generators gets the requests that generators would get, and does not answer.
func generators(t *testing.T, nc *nats.Conn) <-chan *nats.Msg {
	t.Helper()
	requests := make(chan *nats.Msg, 10)
	if _, err := nc.ChanSubscribe("leaf.>", requests); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return requests
}

// A change by an operator is sent once, and says how long its sender waits: so no generator carries it out later.
func TestChangesAreSentOnce(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	requests := generators(t, natskit.Connect(t, s))
	client := admin.NewClient(natskit.Connect(t, s))
	for limit, most := range map[time.Duration]int{200 * time.Millisecond: 200, time.Hour: 10_000} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		ended := make(chan error)
		go func() { _, err := client.DeleteTag(ctx, "order"); ended <- err }()
		header := (<-requests).Header.Get("Leaf-Timeout")
		if got, err := strconv.Atoi(header); err != nil || got <= 0 || got > most {
			t.Errorf("a change of %v waits for %q ms", limit, header)
		}
		if limit == time.Hour {
			cancel()
		}
		err, want := <-ended, context.DeadlineExceeded
		if limit == time.Hour {
			want = context.Canceled
		}
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "no answer on leaf.admin.tags.delete in time") || len(requests) > 0 {
			t.Errorf("%v, and it was sent %d times more", err, len(requests))
		}
		cancel()
	}
}

// A change is sent again to a generator that did nothing because it stops or stood still, and to no other.
func TestChangesGoOn(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	requests := generators(t, nc)
	client := admin.NewClient(natskit.Connect(t, s), admin.Timeout(testkit.Patience))
	ended := make(chan error)
	for _, last := range []bus.Reason{"", bus.StoreUnavailable, bus.TimedOut} {
		go func() { _, err := client.DeleteTag(t.Context(), "order"); ended <- err }()
		for _, reason := range []bus.Reason{bus.Draining, bus.Draining, last} {
			var answer *nats.Msg
			select {
			case request := <-requests:
				answer = nats.NewMsg(request.Reply)
			case err := <-ended:
				t.Fatalf("it was not sent again: %v", err)
			}
			if answer.Data = []byte(`{"tag":"order"}`); reason != "" {
				answer.Header.Set(micro.ErrorCodeHeader, "503")
				answer.Data = []byte(`{"code":503,"reason":"` + string(reason) + `","message":"x"}`)
			}
			if err := nc.PublishMsg(answer); err != nil {
				t.Fatal(err)
			}
		}
		var refused *bus.Error
		select {
		case err := <-ended:
			refused, _ = errors.AsType[*bus.Error](err)
		case <-requests:
			t.Fatalf("it is sent again after %q", last)
		}
		if (refused != nil) != (last != "") || refused != nil && refused.Reason != last {
			t.Errorf("the last answer is %q, and it ended with %v", last, refused)
		}
	}
}

// A request whose answers were lost with the connection ends soon, though the client is connected again. It ends at once
// when the connection is closed.
func TestRequestsEndWithTheConnection(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	requests := generators(t, natskit.Connect(t, s))
	nc := natskit.Connect(t, s)
	c := admin.NewClient(nc, admin.Timeout(testkit.Patience))
	change := func() error { _, err := c.DeleteTag(t.Context(), "order"); return err }
	survey := func() error { _, err := c.Buffers(t.Context(), admin.BuffersRequest{}); return err }
	for _, request := range []func() error{survey, change} {
		ended := make(chan error)
		go func() { ended <- request() }()
		<-requests
		if err := nc.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, nats.ErrDisconnected) {
			t.Fatalf("after a reconnect: %v", err)
		}
		testkit.Eventually(t, "the connection", nc.IsConnected)
	}
	ended := make(chan error)
	go func() { ended <- change() }()
	<-requests
	nc.Close()
	if err := <-ended; !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("%v", err)
	}
}

func TestRequestsThatReachNobody(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	c := admin.NewClient(natskit.Connect(t, s))
	_, err := c.Tag(t.Context(), "order")
	if !errors.Is(err, nats.ErrNoResponders) || !strings.Contains(err.Error(), "no generator answers leaf.admin.tags.get") {
		t.Errorf("without a generator: %v", err)
	}
	requests := generators(t, natskit.Connect(t, s))
	long := admin.TagSpec{Tag: "order", Description: new(strings.Repeat("x", 2<<20))}
	if _, err := c.CreateTag(t.Context(), long); !errors.Is(err, nats.ErrMaxPayload) || len(requests) > 0 {
		t.Errorf("a request beyond max_payload: %v, and %d requests were sent", err, len(requests))
	}
}

// NATS reports a denied request to the connection, and does not answer it. Each kind of request returns it
// at once.
func TestClientWithoutPermission(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	err := os.WriteFile(conf, []byte(`authorization { users: [
		{user: all, password: p}
		{user: mute, password: p, permissions: {publish: {deny: ["leaf.>", "$SRV.>", "$JS.>"], allow: ">"}}}
		{user: deaf, password: p, permissions: {subscribe: {deny: ["_INBOX.>"]}}}
	] }`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := natskit.StartWith(t, embedded.Config{ConfigFile: conf, User: "all", Password: "p"})
	for _, user := range []string{"mute", "deaf"} {
		c := admin.NewClient(natskit.Connect(t, s, nats.UserInfo(user, "p"),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})), admin.Timeout(testkit.Patience/4))
		for name, call := range map[string]func() error{
			"tags":   func() error { _, err := c.Tags(t.Context(), admin.PageRequest{}); return err },
			"states": func() error { _, err := c.States(t.Context()); return err },
		} {
			if err := call(); !errors.Is(err, nats.ErrPermissionViolation) {
				t.Fatalf("%s, %s: %v", user, name, err)
			}
		}
	}
}

// Calls whose context has no deadline end with the client's Timeout, whether nothing is heard or a survey hears more
// and more.
func TestCallsWithoutDeadline(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	responder := natskit.Connect(t, s)
	ended, end := context.WithCancel(context.Background())
	defer end()
	for subject, chatty := range map[string]bool{"leaf.>": false, "$SRV.STATS.leaf": true, admin.SubjectBuffers: true} {
		if _, err := responder.Subscribe(subject, func(msg *nats.Msg) {
			for chatty && ended.Err() == nil && msg.Subject == subject {
				_ = msg.Respond([]byte("{}"))
				time.Sleep(20 * time.Millisecond)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := responder.Flush(); err != nil {
		t.Fatal(err)
	}
	c := admin.NewClient(natskit.Connect(t, s), admin.Timeout(200*time.Millisecond))
	errs := make(chan error, 3)
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := c.DeleteTag(ctx, "order"); return err },
		func(ctx context.Context) error { _, err := c.States(ctx); return err },
		func(ctx context.Context) error { _, err := c.Buffers(ctx, admin.BuffersRequest{}); return err },
	} {
		go func() { errs <- call(t.Context()) }()
	}
	for range 3 {
		select {
		case err := <-errs:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		case <-time.After(testkit.Patience / 4):
			t.Fatal("a call has no bound")
		}
	}
}
