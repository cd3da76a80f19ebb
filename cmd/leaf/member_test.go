package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake/zookeeper"
)

// Who asks for the workers while ZooKeeper does not answer goes away when told to,
// though others ask, too: a generator that stops waits for nobody's question.
func TestQuestionsEnd(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	zk, err := zookeeper.New(zookeeper.Config{Hosts: silent.Addr().String(), Node: "n", Log: testkit.Quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(zk.Close)
	r := registry{zk, &member{zk: zk, claiming: make(chan struct{}, 1)}}
	list := func(ctx context.Context) <-chan error {
		ended := make(chan error, 1)
		go func() { _, err := r.List(ctx); ended <- err }()
		return ended
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := list(ctx)
	conn, err := silent.Accept() // it is asked, and nothing else can be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })

	gone, leave := context.WithCancel(t.Context())
	leave()
	select {
	case err := <-list(gone):
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the second: %v", err)
		}
	case err := <-first:
		t.Errorf("the second waits until the first ends: %v", err)
	}
	cancel()
	if err := <-first; err == nil {
		t.Error("the first was answered")
	}
}

// A new folder is refused when JetStream was missed for 5 s. One that belongs to an installation waits.
func TestJetStreamPatience(t *testing.T) {
	t.Parallel()
	s := startNATS(t, &server.Options{})
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	began := time.Now()
	for _, known := range []string{"", "known"} {
		m := &member{state: kvstore.Config{Conn: nc}, installation: known}
		for after, refused := range map[time.Duration]bool{0: false, jetStreamPatience - 1: false, jetStreamPatience: known == "", time.Hour: known == ""} {
			m.missed = began
			err := m.withoutJetStream(began.Add(after), kvstore.ErrNoJetStream)
			if errors.Is(err, allocator.ErrRefused) != refused || !errors.Is(err, kvstore.ErrNoJetStream) {
				t.Errorf("folder of %q, after %v: %v", known, after, err)
			}
			if refused && !strings.Contains(err.Error(), s.ClientURL()) {
				t.Errorf("it does not name the server: %v", err)
			}
		}
	}
}
