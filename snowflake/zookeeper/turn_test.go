package zookeeper

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leafbus/leafbus/snowflake"
	server "github.com/leafbus/leafbus/tests/zookeeper"
)

// turn is an address that leads to one server until that has answered something
// with a certain text, and to another from then on. The answer still arrives, and
// the connection ends with it: what is asked next goes to the other.
type turn struct {
	from, to, text string
	turned         atomic.Bool
	running        sync.WaitGroup
}

// listen returns the address.
func (w *turn) listen(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close(); w.running.Wait() })
	w.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // it is closed
			}
			w.running.Go(func() { w.forward(client) })
		}
	})
	return l.Addr().String()
}

func (w *turn) forward(client net.Conn) {
	defer client.Close()
	turned := w.turned.Load()
	target := w.from
	if turned {
		target = w.to
	}
	there, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer there.Close()
	w.running.Go(func() { _, _ = io.Copy(there, client); there.Close() })
	for answer := make([]byte, 4); ; answer = answer[:4] {
		if _, err := io.ReadFull(there, answer); err != nil {
			return
		}
		answer = append(answer, make([]byte, binary.BigEndian.Uint32(answer))...)
		if _, err := io.ReadFull(there, answer[4:]); err != nil {
			return
		}
		last := !turned && bytes.Contains(answer, []byte(w.text))
		if last {
			w.turned.Store(true)
		}
		if _, err := client.Write(answer); err != nil || last {
			return
		}
	}
}

// An address turns to another ZooKeeper, of another installation, while a
// generator claims its own there. Whatever that has read before, nothing is made
// in the other: a node with the first one's ID there would let all that follows
// be written there.
func TestClaimTurns(t *testing.T) {
	t.Parallel()
	const tries = 16 // now and then the client drops what it asks next
	mine, other := newSite(t, server.New(t).Addr()), newSite(t, server.Hosts(t))
	other.name = mine.name
	_, first, err := mine.open(t, "first").Claim(within(t), "mine", true)
	if err != nil {
		t.Fatal(err)
	}
	other.claimed(t, "x")
	before := other.children(t, other.path("installation"))
	other.outlive(t)
	b := newBatch(t, 8)
	defer b.wait()
	for i := range tries {
		b.run(fmt.Sprint(i), func(t *testing.T) {
			w := &turn{from: mine.hosts, to: other.hosts, text: first}
			addr := w.listen(t)
			way := *mine
			// A client that has tried all of its addresses drops what waits.
			way.hosts = strings.Join([]string{addr, addr, addr, addr}, ",")
			r := way.open(t, fmt.Sprint("n", i))
			of, id, err := r.Claim(within(t), "mine", false)
			if err == nil || errors.Is(err, snowflake.ErrRefused) {
				t.Errorf("Claim: %s, %s, %v; want an error that may pass", of, id, err)
			}
			if err == nil {
				_, _ = r.Add(within(t), holder(fmt.Sprint("n", i)), anyWorker)
			}
			if folders := other.children(t, other.path()); len(folders) != 1 {
				t.Errorf("the other has now %v", folders)
			}
			if after := other.children(t, other.path("installation")); !maps.Equal(before, after) {
				t.Errorf("the other had the IDs %v and has %v", before, after)
			}
		})
	}
}

// outlive makes nodes until the server has seen so many transactions that it takes
// the clients of another, which has only begun.
func (s *site) outlive(tb testing.TB) {
	tb.Helper()
	where := s.path("more")
	for {
		s.create(tb, where, "")
		_, stat, err := s.admin.Get(where)
		if err != nil {
			tb.Fatal(err)
		}
		s.remove(tb, where)
		if stat.Czxid > 1000 {
			return
		}
	}
}
