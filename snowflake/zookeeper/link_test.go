package zookeeper

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/kit"
)

// isRequest reports whether a packet of a client is neither a ping nor a greeting.
func isRequest(packet []byte) bool {
	return len(packet) > 12 && binary.BigEndian.Uint32(packet[4:]) != 0
}

func TestParseHosts(t *testing.T) {
	for list, want := range map[string][]string{
		"h1":                     {"h1:2181"},
		"h1:2182,h2, h3:1 ":      {"h1:2182", "h2:2181", "h3:1"},
		"10.0.0.5,[::1]:9,[::1]": {"10.0.0.5:2181", "[::1]:9", "[::1]:2181"},
		"::1":                    {"[::1]:2181"},
	} {
		if got, err := parseHosts(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", list, got, err, want)
		}
	}
	for _, list := range []string{"", " ", ",", "h1,", "h1:0", "h1:65536", "h1:x", "h1:2181/chroot", "zk://h1", "a b:1", "h1:1:2", "u:p@h1:1", ":2181"} {
		if got, err := parseHosts(list); err == nil {
			t.Errorf("%q: %q", list, got)
		}
	}
}

// A connection breaks while one of two addresses accepts connections and answers nothing. The registry finds the one
// that works.
func TestOneAddressHangs(t *testing.T) {
	t.Parallel()
	_, behind, first := newProxied(t, kit.ZooKeeperHosts(t))
	_, other, second := newProxied(t, kit.ZooKeeperHosts(t))
	behind.hosts += "," + other.hosts
	k := newKeeper(t, behind)
	for _, hangs := range []*kit.Link{first, second} {
		first.Hang(hangs == first)
		second.Hang(hangs == second)
		first.Cut()
		second.Cut()
		k.reports()
	}
}

// A write whose answer is lost is an error that says neither that it was done nor that nothing changed. The next
// try finds what it did.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	s, behind, p := newProxied(t, kit.ZooKeeperHosts(t))
	add(t, s.claimed(t, "b"), "b") // else the folders are written first
	r := behind.claimed(t, "a")
	const multi = 14 // all writes are
	lose := func(call func() error) {
		t.Helper()
		var once atomic.Bool
		p.OnRequest(func(packet []byte) kit.Action {
			if isRequest(packet) && binary.BigEndian.Uint32(packet[8:]) == multi && once.CompareAndSwap(false, true) {
				return kit.CutAfter
			}
			return kit.Forward
		})
		err := call()
		if err == nil || errors.Is(err, snowflake.ErrConflict) || errors.Is(err, snowflake.ErrFull) || !once.Load() {
			t.Fatalf("a write whose answer is lost: %v", err)
		}
	}
	own := func() (own snowflake.Entry) {
		t.Helper()
		testkit.Eventually(t, "it is connected again", func() bool {
			all, err := r.List(within(t))
			if len(all) == 2 {
				own = all[1]
			}
			return err == nil
		})
		return own
	}
	lose(func() error { _, err := r.Add(within(t), holder("a"), anyWorker); return err })
	e := own()
	lose(func() error { _, err := r.Put(within(t), e.Record, e.Version); return err })
	now := own()
	if now.Record != e.Record || now.Node != "a" || now.Version == e.Version {
		t.Errorf("the record is %+v after a lost answer, and was %+v", now, e)
	}
	report(t, r, &now)
	if made := s.children(t, s.path("leaf_forever")); len(made) != 2 {
		t.Errorf("the nodes are %v", made)
	}
}

// Close waits for what was asked, though its caller gave up long before, and leaves nothing of the clients of a
// ZooKeeper that hangs: TestMain looks for goroutines.
func TestClose(t *testing.T) {
	t.Parallel()
	_, behind, p := newProxied(t, kit.ZooKeeperHosts(t))
	r := behind.claimed(t, "a")
	p.Hang(true)
	for range 2 { // the second client finds a server that does not greet it
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := r.List(ctx); err == nil {
			t.Fatal("it was answered")
		}
		cancel()
		r.link.mu.Lock()
		c := r.link.client
		r.link.mu.Unlock()
		if c != nil {
			r.link.drop(c)
		}
	}
	p.Hang(false)
	var ended atomic.Bool
	begun := make(chan struct{})
	ctx, cancel := context.WithCancel(within(t))
	go func() { <-begun; cancel() }()
	_, err := ask(ctx, r.link, func(context.Context, *client) (int, error) {
		close(begun)
		<-ctx.Done()
		time.Sleep(100 * time.Millisecond)
		ended.Store(true)
		return 0, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.Close()
	if !ended.Load() {
		t.Error("Close did not wait for what was asked")
	}
	if _, err := r.List(within(t)); err == nil {
		t.Error("it can be asked after Close")
	}
}
