package generator_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A generator that cannot have all its subscriptions is refused, and the error says what to do. One that cannot hear the
// others, or is not heard, does not join the installation.
func TestStartWithoutSubscriptions(t *testing.T) {
	t.Parallel()
	denied := func(verb, subject string) string {
		return `authorization { users: [{user: u, password: p, permissions: {` + verb + `: {deny: "` + subject + `"}}}] }
			no_auth_user: u`
	}
	for config, says := range map[string]string{
		"max_subs: 20": "max_subs",
		"max_subs: 40": "max_subs",
		`accounts { A { jetstream: enabled, users: [{user: u, password: p}], limits { max_subs: 45 } } }
			no_auth_user: u`: "max_subs",
		denied("subscribe", "leaf.segment.>"):         "leaf.segment.>",
		denied("subscribe", "$SRV.STATS.leaf"):        "$SRV.STATS.leaf",
		denied("subscribe", "leaf.internal.presence"): "must hear each other",
		denied("publish", "leaf.internal.presence"):   "must hear each other",
		denied("subscribe", "leaf.internal.record"):   "must hear each other",
		`authorization { users: [{user: u, password: p, permissions: {publish: ["leaf.>", "$SRV.>", "$JS.>", "$KV.>"]}}] }
			no_auth_user: u`: "allow_responses",
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			r, ready := begin(t, natskit.StartWith(t, configured(t, config)), "n", memory(t, "order"), func(c *generator.Config) {
				join := c.Join
				c.Join = func(ctx context.Context, may func(context.Context) error) (generator.Identity, error) {
					if says == "must hear each other" {
						t.Error("it joins")
					}
					return join(ctx, may)
				}
			})
			select {
			case err := <-r.done:
				refused := errors.Is(err, nats.ErrMaxSubscriptionsExceeded) || errors.Is(err, nats.ErrPermissionViolation)
				if !refused || !strings.Contains(err.Error(), says) {
					t.Errorf("%s: Run: %v", config, err)
				}
				r.done <- err
			case <-ready:
				t.Errorf("%s: it is ready", config)
			case <-time.After(testkit.Patience):
				t.Errorf("%s: it goes on", config)
			}
		})
	}
}

// A generator that loses a subscription later is not ready, and leaves the requests to another one, until it connects
// again.
func TestRefusedSubscriptionLater(t *testing.T) {
	t.Parallel()
	s := natskit.StartWith(t, configured(t, "max_subs: 100"))
	nc := natskit.Connect(t, s)
	shared := memory(t, "order")
	deaf := start(t, s, "deaf", shared, nil)
	start(t, s, "other", shared, nil)
	var more []*nats.Subscription
	for range 100 {
		sub, err := deaf.conn.SubscribeSync("more")
		if err != nil {
			t.Fatal(err)
		}
		more = append(more, sub)
	}
	testkit.Eventually(t, "it is not ready", func() bool {
		return strings.Contains(deaf.Readiness().Reasons["bus"], "max_subs")
	})
	testkit.Eventually(t, "it leaves the queue group", func() bool {
		return slices.Equal(serving(t, nc), []string{"other"})
	})
	for _, sub := range more {
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
	if err := deaf.conn.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it is ready again", func() bool { return deaf.Readiness().Ready && len(serving(t, nc)) == 2 })
	if deaf.conn.ErrorHandler()(deaf.conn, nil, nats.ErrSlowConsumer); deaf.State().Counts.Overloads != 1 {
		t.Error("requests that were dropped are no overload")
	}
}

// Streams that keep requests, or answers to generators, are logged.
func TestStreamsThatKeepTooMuch(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	js, err := jetstream.New(natskit.Connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	for name, subject := range map[string]string{"requests": "leaf.snowflake", "answers": "leaf.internal.>"} {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}})
		if err != nil {
			t.Fatal(err)
		}
	}
	var lines bytes.Buffer
	var writing sync.Mutex
	start(t, s, "n", memory(t, "order"), func(c *generator.Config) {
		c.Log = slog.New(slog.NewTextHandler(locked{&writing, &lines}, nil))
	})
	testkit.Eventually(t, "both are logged", func() bool {
		writing.Lock()
		defer writing.Unlock()
		text := lines.String()
		return strings.Contains(text, "in place of IDs") && strings.Contains(text, "keys of opaque tags")
	})
}
