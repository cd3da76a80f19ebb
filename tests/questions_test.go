package tests

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/proxy"
	"github.com/leafbus/leafbus/tests/zookeeper"
)

// silence lets no question about the workers reach ZooKeeper, and sees whether a
// generator reports while the answer to one is owed.
type silence struct {
	mu       sync.Mutex
	owed     bool // an answer
	reported bool
}

// packet decides on what a client sends: the length, the number of the request,
// which is 0 in a greeting, and the kind, 4 bytes each.
func (s *silence) packet(data []byte) proxy.Action {
	const closeSession, children, multi = -11, 12, 14
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(data) < 12 {
		return proxy.Forward
	}
	number, kind := binary.BigEndian.Uint32(data[4:]), int32(binary.BigEndian.Uint32(data[8:]))
	switch {
	case number == 0 || kind == closeSession: // nobody waits on that connection any more
		s.owed = false
	case kind == children && bytes.Contains(data, []byte("/leaf_forever")):
		s.owed = true
		return proxy.Drop
	case kind == multi:
		s.reported = s.reported || s.owed
	}
	return proxy.Forward
}

// seen says whether the generator has reported.
func (s *silence) seen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reported
}

// However many ask a generator for the list of workers, and however long ZooKeeper
// takes for it, the generator goes on to report there: else it would lose its
// worker.
func TestQuestionsHoldNothingUp(t *testing.T) {
	t.Parallel()
	p := newPlace(t, zookeeper.Hosts(t))
	way, err := proxy.Start(p.hosts)
	must(t, err)
	t.Cleanup(way.Close)
	p.hosts = way.Addr()
	g := embed(t, p.flags("--node", "n", "--worker-reserve", "4s")...) // it reports each second
	nc := connect(t, g.url)
	snowflake(t, nc)
	var s silence
	way.OnRequest(s.packet)
	testkit.Eventually(t, "a report while ZooKeeper owes the answer to a question", func() bool {
		must(t, nc.PublishRequest("leaf.admin.workers.list", "nobody", []byte("{}")))
		return s.seen()
	})
	snowflake(t, nc)
}

// An old record may bear the name of the generator that is asked to release it: an
// operator gave the name to another machine before. That generator's temporary
// node goes on to say that it runs.
func TestReleaseOfOwnName(t *testing.T) {
	t.Parallel()
	p := newPlace(t, zookeeper.Hosts(t))
	g := embed(t, p.flags("--node", "n")...)
	snowflake(t, connect(t, g.url))
	before, session, _ := node[temporary](t, p, "leaf_temporary", "n")
	hourAgo := time.Now().Add(-time.Hour).UnixMilli()
	text, err := json.Marshal(forever{
		Node: "n", Incarnation: "an older one", Timestamp: hourAgo, Acquired: hourAgo, ReservedUntil: time.Now().Add(time.Hour).UnixMilli(),
	})
	must(t, err)
	const name = "n-0000000005"
	_, err = p.conn.Create(fmt.Sprintf("/leaf/%s/leaf_forever/%s", p.name, name), text, 0, zk.WorldACL(zk.PermAll))
	must(t, err)
	testkit.Eventually(t, "the release", func() bool {
		r := leaf(t, "workers", "release", "5", "--yes", "-s", g.url)
		if r.status != 0 && !strings.Contains(r.stderr, "not known yet") {
			t.Fatal(r)
		}
		return r.status == 0
	})
	if after, _, _ := node[forever](t, p, "leaf_forever", name); after.Incarnation == "an older one" {
		t.Errorf("the record is %+v as before", after)
	}
	if after, now, _ := node[temporary](t, p, "leaf_temporary", "n"); session == 0 || now != session || after != before {
		t.Errorf("the temporary node says %+v (session %x); it said %+v (session %x)", after, now, before, session)
	}
}
