package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/schema"
	"github.com/leafbus/leafbus/snowflake/zookeeper"
)

// A JetStream that answers, if only with an error, is there: that it was missed
// before counts no more, and ZooKeeper does not get the installation's record
// because it is missed again for a moment.
func TestSolePatience(t *testing.T) {
	t.Parallel()
	nc, err := nats.Connect(startNATS(t, &server.Options{}).ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	// Neither is there, so nothing is made.
	nowhere := strings.TrimPrefix(freeAddress(t), "nats://")
	zk, err := zookeeper.New(zookeeper.Config{Hosts: nowhere, Node: "n", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(zk.Close)
	db, err := schema.New(schema.Config{DSN: "leaf@tcp(" + nowhere + ")/leaf", Refresh: time.Minute, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	m := &member{state: kvstore.Config{Conn: nc, JS: js, Log: log}, db: db, zk: zk, log: log}

	const waits = "JetStream does not answer; if it does not come"
	join := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.join(ctx, nil)
		if err == nil {
			t.Fatal("it joined")
		}
		return err
	}
	if err := join(); !strings.Contains(err.Error(), waits) {
		t.Errorf("when JetStream is missed first: %v", err)
	}
	m.sole.since = m.sole.since.Add(-solePatience) // it was missed for so long
	busy, err := nc.Subscribe("$JS.API.>", func(msg *nats.Msg) {
		_ = msg.Respond([]byte(`{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := join(); errors.Is(err, kvstore.ErrNoJetStream) || !strings.Contains(err.Error(), "temporarily unavailable") {
		t.Errorf("when it is busy: %v", err)
	}
	if err := busy.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	if err := join(); !strings.Contains(err.Error(), waits) {
		t.Errorf("when it is missed again: %v", err)
	}
	m.sole.since = m.sole.since.Add(-solePatience)
	if err := join(); !strings.Contains(err.Error(), "ZooKeeper is not connected") {
		t.Errorf("when it was missed for long: %v; want ZooKeeper to be asked", err)
	}
}
