package generator_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A request without a tag gets no snowflakes of another generator instead, also while requests for segments wait after a pause.
func TestNoSnowflakesWithoutATag(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := memory(t)
	with, _ := startIn(t, s, "with", "own", store, nil)
	paused, _ := startIn(t, s, "paused", "own", store, nil)
	testkit.Eventually(t, "one has a worker, and they hear each other", func() bool {
		return with.State().Snowflake && paused.Hears("with") && with.Hears("paused")
	})
	paused.HoldSegments()
	if ranges, err := paused.Take(t.Context(), "", 1); !errors.Is(err, bus.BadTag) {
		t.Errorf("%v, %v", ranges, err)
	}
}

// IDs of another generator are dropped if they must not be handed out: a strict tag was seen above them, or an operator has moved max_id
// above while they were on their way.
func TestOtherIDsBelow(t *testing.T) {
	t.Parallel()
	for _, tag := range []string{"invoice", "order"} {
		t.Run(tag, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			nc := natskit.Connect(t, s)
			store := memory(t, "order")
			withInvoice(t, store)
			dry, away := startIn(t, s, "dry", "own", store, nil)
			dry.takeAll(t, tag, 20)
			away.away.Store(true)
			_, err := nc.Subscribe(wire.SubjectHave, func(msg *nats.Msg) { _ = msg.Respond([]byte(`{"run":"run-of-near","left":1000}`)) })
			if err != nil {
				t.Fatal(err)
			}
			_, err = nc.Subscribe(wire.SubjectTake+".run-of-near", func(msg *nats.Msg) {
				answer := &nats.Msg{Subject: msg.Reply, Data: []byte("1-100"), Header: nats.Header{}}
				if tag == "invoice" {
					answer.Data = []byte("20-119") // it has handed out 20
					answer.Header.Set(bus.HeaderOrder, bus.OrderStrict)
				} else if reply, code := ask(t, nc, wire.SubjectTagChanged, `{"tag":"order","max_id":"5000","floor":"5000","step":10}`); code != "" {
					t.Errorf("the change of the tag: %s", reply)
				}
				_ = nc.PublishMsg(answer)
			})
			if err != nil {
				t.Fatal(err)
			}
			dry.report(t, nc, "near", `,"segment":true`)
			if ranges, err := dry.Take(t.Context(), tag, 100); !errors.Is(err, bus.StoreUnavailable) {
				t.Errorf("%v, %v", ranges, err)
			}
		})
	}
}

// A generator that is near offers IDs each time, and never has them. So those of another one are taken.
func TestOfferOfANearOneThatFails(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	for subject, f := range map[string]nats.MsgHandler{
		wire.SubjectHave: func(msg *nats.Msg) {
			_ = msg.Respond([]byte(`{"run":"run-of-near","left":100}`))
			_ = msg.Respond([]byte(`{"run":"run-of-far","left":100}`))
		},
		wire.SubjectTake + ".run-of-near": func(msg *nats.Msg) { _ = msg.Respond([]byte("nonsense")) },
		wire.SubjectTake + ".run-of-far":  func(msg *nats.Msg) { _ = msg.Respond([]byte("1-5")) },
	} {
		if _, err := nc.Subscribe(subject, f); err != nil {
			t.Fatal(err)
		}
	}
	dry, away := startIn(t, s, "dry", "own", memory(t, "order"), nil)
	away.away.Store(true)
	dry.report(t, nc, "near", `,"segment":true`)
	dry.report(t, nc, "far", `,"segment":true`)
	if ranges, err := dry.Take(t.Context(), "order", 5); err != nil {
		t.Errorf("%v, %v", ranges, err)
	}
}
