package kvstore

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/wire"
)

// While a server leads the tags that names no version, as those before 2.11, nothing is claimed. A start is refused.
func TestOldLeader(t *testing.T) {
	s := natskit.Start(t)
	cfg := newConfig(t, s)
	var old atomic.Pointer[string] // a part of the subjects that an old server answers; nil: none does
	api, err := cfg.JS.Conn().Subscribe("api.>", func(m *nats.Msg) {
		subject := strings.TrimPrefix(m.Subject, "api.")
		if !strings.HasPrefix(subject, "$KV.") {
			subject = "$JS.API." + subject
		}
		answer, err := cfg.JS.Conn().RequestMsg(&nats.Msg{Subject: subject, Header: m.Header, Data: m.Data}, time.Second)
		if err != nil {
			return
		}
		if of := old.Load(); of != nil && strings.Contains(subject+".", *of) {
			answer.Data = bytes.ReplaceAll(answer.Data, []byte(leaderVersion), []byte("_none"))
		}
		_ = m.RespondMsg(answer)
	})
	if err == nil {
		err = cfg.JS.Conn().Flush() // others ask over another connection
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Unsubscribe() }()
	through := newConfig(t, s)
	if through.JS, err = jetstream.NewWithAPIPrefix(through.JS.Conn(), "api"); err != nil {
		t.Fatal(err)
	}
	r := openRecordsOf(t, through)
	revision := swap(t, r, trend("order", 11), 0)
	for _, of := range []string{"." + streamOf(wire.BucketInstallation) + ".", ""} {
		old.Store(&of)
		if _, err := r.look(t.Context()); err != nil || !errors.Is(r.Err(), allocator.ErrRefused) {
			t.Errorf("an old leader of %q: %v, %v", of, err, r.Err())
		}
	}
	if _, err := r.Swap(t.Context(), trend("order", 21), revision); !errors.Is(err, allocator.ErrUnavailable) {
		t.Errorf("a claim: %v", err)
	}
	_, _, err = ReadInstallation(t.Context(), through)
	if !errors.Is(err, allocator.ErrRefused) || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("a start: %v", err)
	}
	old.Store(nil)
	if _, err := r.look(t.Context()); err != nil || r.Err() != nil {
		t.Errorf("a new leader: %v, %v", err, r.Err())
	}
	swap(t, r, trend("order", 21), revision)
}
