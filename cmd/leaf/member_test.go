package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"

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
	zk, err := zookeeper.New(zookeeper.Config{Hosts: silent.Addr().String(), Node: "n", Log: slog.New(slog.DiscardHandler)})
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
