package bus_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// answers makes a connection of the server answer subject with f's answers, in
// their order. It returns how many requests came.
func answers(
	t *testing.T, s *embedded.Server, subject string, f func(i int64, msg *nats.Msg) *nats.Msg, opts ...nats.Option,
) *atomic.Int64 {
	t.Helper()
	var n atomic.Int64
	nc := natskit.Connect(t, s, opts...)
	_, err := nc.Subscribe(subject, func(msg *nats.Msg) {
		if reply := f(n.Add(1), msg); reply != nil {
			msg.RespondMsg(reply)
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &n
}

func ids(text string) *nats.Msg { return &nats.Msg{Data: []byte(text)} }

func refusal(code int, reason bus.Reason, hint time.Duration) *nats.Msg {
	return &nats.Msg{
		Header: nats.Header{micro.ErrorCodeHeader: {fmt.Sprint(code)}, micro.ErrorHeader: {"no"}},
		Data:   fmt.Appendf(nil, `{"code":%d,"reason":%q,"message":"no","retry_after_ms":%d}`, code, reason, hint.Milliseconds()),
	}
}

// What may pass is retried, and not before the hint of the answer is over. All else is asked for once.
func TestClientTriesAgainWhatMayGetBetter(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	const never = -1
	for reason, hint := range map[bus.Reason]time.Duration{
		bus.Draining: 0, bus.Overloaded: 150 * time.Millisecond, bus.StoreUnavailable: 0,
		bus.TimedOut: 0, bus.ClockBackwards: 70 * time.Millisecond, bus.NoWorkerID: 0,
		"silent": 0, // the message may be lost

		bus.BadRequest: never, bus.BadTag: never, bus.UnknownTag: never, bus.BatchTooLarge: never, bus.QuotaExceeded: never,
		bus.Internal: never, bus.Exhausted: never, bus.Paused: never, "of_another_version": never,
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			var refused, asked time.Time
			n := answers(t, s, "leaf.segment."+string(reason), func(i int64, _ *nats.Msg) *nats.Msg {
				if asked = time.Now(); i > 1 {
					return ids("5-7")
				}
				if refused = asked; reason == "silent" {
					return nil
				}
				return refusal(503, reason, max(hint, 0))
			})
			patience := testkit.Patience // an answer that takes a fifth of it is asked for again
			if reason == "silent" {
				patience /= 10
			}
			client := bus.NewClient(natskit.Connect(t, s), bus.NoHedging(), bus.Timeout(patience))
			got, err := client.Take(t.Context(), string(reason), 3)
			if hint == never {
				if !errors.Is(err, reason) || n.Load() != 1 {
					t.Errorf("%v after %d requests", err, n.Load())
				}
				return
			}
			if err != nil || len(got) != 1 || got[0] != (bus.Range{First: 5, Last: 7}) || n.Load() < 2 {
				t.Errorf("%v, %v after %d requests", got, err, n.Load())
			}
			if pause := asked.Sub(refused); pause < hint {
				t.Errorf("the retry came after %v; the hint was to wait for %v", pause, hint)
			}
		})
	}
}

// A reply with another number of IDs than requested is an error.
func TestClientRefusesFalseAnswers(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	for i, text := range []string{
		"", "0", "-1", "7", "7-8", "7-10", "7-9 ", "x", "9-7", "7-9\n", "07-09", `{"count":3}`,
		"1-2\n2", "7\n5-6\n", "6\n5-6", // an ID twice
		"1-9223372036854775807\n1-9223372036854775807\n1-5", // wraps to 3
	} {
		subject := fmt.Sprintf("leaf.segment.t%d", i)
		n := answers(t, s, subject, func(int64, *nats.Msg) *nats.Msg { return ids(text) })
		got, err := bus.NewClient(natskit.Connect(t, s), bus.NoHedging()).Take(testkit.Context(t), subject[len("leaf.segment."):], 3)
		if err == nil || n.Load() != 1 {
			t.Errorf("%q: %v, %v after %d requests", text, got, err, n.Load())
		}
	}
}

// The error of a call that its context ended says why there were no IDs.
func TestClientThatGivesUp(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	none := bus.NewClient(nc, bus.Timeout(2*time.Second)) // long enough for a request on a busy machine
	_, err := none.Take(t.Context(), "order", 1)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("without a deadline: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	answers(t, s, "leaf.snowflake", func(i int64, _ *nats.Msg) *nats.Msg {
		if i == 2 {
			cancel()
			return nil
		}
		return refusal(503, bus.ClockBackwards, 0)
	})
	_, err = bus.NewClient(nc, bus.NoHedging()).Snowflakes(ctx, 1) // a hedge could be the second request
	if !errors.Is(err, context.Canceled) || !errors.Is(err, bus.ClockBackwards) {
		t.Errorf("cancelled: %v", err)
	}
	answers(t, s, "leaf.segment.order", func(int64, *nats.Msg) *nats.Msg { return refusal(503, bus.StoreUnavailable, 0) })
	some := bus.NewClient(nc, bus.Timeout(2*time.Second))
	pool, err := some.Pool("order")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for what, next := range map[string]func(context.Context) (int64, error){
		"a pool": pool.Next, "Next": func(ctx context.Context) (int64, error) { return some.Next(ctx, "order") },
	} {
		if _, err := next(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, bus.StoreUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// While the connection is lost the client sends nothing: the answer would come after its caller has left.
func TestClientSendsNothingWhileNATSIsAway(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Listen: "127.0.0.1:0", StoreDir: t.TempDir(), Log: testkit.Quiet}
	s, err := embedded.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c := bus.NewClient(nc, bus.NoHedging())
	cfg.Listen = strings.TrimPrefix(s.ClientURL(), "nats://")
	s.Close()
	testkit.Eventually(t, "the connection is lost", nc.IsReconnecting)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := c.Take(ctx, "order", 1000); !errors.Is(err, nats.ErrConnectionReconnecting) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a Take: %v", err)
	}
	if s := c.Stats(); s != (bus.Stats{}) {
		t.Errorf("it counts requests that it did not send: %+v", s)
	}
	done := make(chan error)
	go func() { done <- second(c.Take(testkit.Context(t), "order", 3)) }() // this one outlasts it
	if s, err = embedded.Start(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	n := answers(t, s, "leaf.segment.order", func(int64, *nats.Msg) *nats.Msg { return ids("1-3") })
	if err := <-done; err != nil || n.Load() != 1 {
		t.Errorf("%v after %d requests", err, n.Load())
	}
}

func TestClientChecksBeforeItSends(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	n := answers(t, s, "leaf.>", func(int64, *nats.Msg) *nats.Msg { return ids("1") })
	c := bus.NewClient(nc, bus.NoHedging())
	for name, err := range map[string]error{
		"no tag":       second(c.Take(t.Context(), "", 1)),
		"wildcard":     second(c.Take(t.Context(), "*", 1)),
		"long tag":     second(c.Take(t.Context(), strings.Repeat("t", 129), 1)),
		"next":         second(c.Next(t.Context(), "a b")),
		"next of none": second(c.Next(t.Context(), "")),
		"pool":         second(c.Pool(">")),
		"no IDs":       second(c.Take(t.Context(), "order", 0)),
		"less":         second(c.Snowflakes(t.Context(), -1)),
		"least":        second(c.Pool("order", bus.Ahead(0, 10))),
		"most":         second(c.Pool("order", bus.Ahead(11, 10))),
		"bulk":         first(c.Ranges(t.Context(), "a b", 10)),
		"bulk of 0":    first(c.IDs(t.Context(), "order", 0)),
		"batch":        first(c.IDs(t.Context(), "order", 10, bus.Batch(0))),
		"parallel":     first(c.SnowflakeIDs(t.Context(), 10, bus.Parallel(0))),
		"parallel +":   first(c.SnowflakeRanges(t.Context(), 10, bus.Parallel(1001))),
	} {
		if !errors.Is(err, bus.BadTag) && !errors.Is(err, bus.BadRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n.Load() != 0 {
		t.Errorf("%d requests were sent", n.Load())
	}
}

func second[T any](_ T, err error) error { return err }

// first is the error of an iterator that yields but that.
func first[T any](seq func(func(T, error) bool)) error {
	var all []error
	for _, err := range seq {
		all = append(all, err)
	}
	if len(all) != 1 {
		return fmt.Errorf("%d values came: %v", len(all), all)
	}
	return all[0]
}

// NATS reports a denied request to the connection, and does not answer it. Each kind of request has that in its error
// when its time is over.
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
	as := func(user string) *nats.Conn {
		return natskit.Connect(t, s, nats.UserInfo(user, "p"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	}
	generator := as("all")
	if _, err = generator.Subscribe("leaf.segment.order", func(msg *nats.Msg) { msg.Respond([]byte("1")) }); err == nil {
		err = generator.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	for user, denied := range map[string]string{"mute": "leaf.segment.order", "deaf": "_INBOX."} {
		c := bus.NewClient(as(user), bus.Timeout(300*time.Millisecond))
		pool, err := c.Pool("order")
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		for name, f := range map[string]func(context.Context) error{
			"take": func(ctx context.Context) error { return second(c.Take(ctx, "order", 1)) },
			"next": func(ctx context.Context) error { return second(c.Next(ctx, "order")) },
			"pool": func(ctx context.Context) error { return second(pool.Next(ctx)) },
			"bulk": func(ctx context.Context) error { return first(c.IDs(ctx, "order", 1)) },
		} {
			err := f(t.Context())
			if !errors.Is(err, nats.ErrPermissionViolation) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), denied) {
				t.Errorf("%s, %s: %v", user, name, err)
			}
		}
	}
}
