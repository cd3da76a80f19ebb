package zookeeper

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/proxy"
	server "github.com/leafbus/leafbus/tests/zookeeper"
)

// One answer never comes, though the server is well and answers pings: the client
// would wait for it as long as that lasts, and nothing else could be asked. The
// registry connects anew: in another session, or in the same one if the client lost the connection meanwhile.
func TestSilence(t *testing.T) {
	t.Parallel()
	_, behind, p := newProxied(t, server.Hosts(t))
	r := behind.open(t, "a")
	r.link.timeout = 2 * time.Second // it waits for two of them
	if _, _, err := r.Claim(within(t), "ours", true); err != nil {
		t.Fatal(err)
	}
	e, err := r.Add(within(t), holder("a"), anyWorker)
	if err != nil {
		t.Fatal(err)
	}
	var dropped atomic.Bool
	p.OnRequest(func(packet []byte) proxy.Action {
		if len(packet) > 12 && binary.BigEndian.Uint32(packet[4:]) != 0 && dropped.CompareAndSwap(false, true) {
			return proxy.Drop // neither a ping nor a greeting
		}
		return proxy.Forward
	})
	put := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.Put(ctx, e.Record, e.Version)
		// The one before may have been done after all, when it was not waited for any more.
		return err == nil || errors.Is(err, snowflake.ErrConflict)
	}
	if put() || !dropped.Load() {
		t.Fatal("it was answered")
	}
	testkit.Eventually(t, "it is answered again", put)
}
