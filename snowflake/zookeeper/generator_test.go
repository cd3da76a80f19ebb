package zookeeper

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// machine runs generator "a", which may stop and start again.
type machine struct {
	tb      testing.TB
	site    *site // by the machine's way to ZooKeeper
	disk    *snowflaketest.Disk
	reserve time.Duration // a report comes each quarter of it
	ids     allocatortest.Checker
}

func newMachine(tb testing.TB, s *site, reserve time.Duration) *machine {
	return &machine{tb: tb, site: s, disk: snowflaketest.NewDisk(), reserve: reserve}
}

// generator is a generator that runs.
type generator struct {
	*snowflake.Generator
	m        *machine
	file     *snowflake.File
	registry *attended
	running  sync.WaitGroup
	stop     func() // in order
}

// start starts a generator, which the test stops at its end at the latest.
func (m *machine) start() *generator {
	m.tb.Helper()
	m.disk = m.disk.Kill()
	file, err := snowflake.NewFile(m.disk)
	if err != nil {
		m.tb.Fatal(err)
	}
	g := &generator{m: m, file: file, registry: &attended{Registry: m.site.open(m.tb, "a")}}
	g.Generator = snowflake.New(snowflake.Config{
		Layout: snowflake.DefaultLayout(), Registry: g.registry, File: file, Place: "inode:1", Node: "a", LastWorker: 1023,
		Reserve: m.reserve, MaxWait: 15 * time.Second, Log: testkit.Quiet, // dozens of generators share a busy machine
	})
	ctx, cancel := context.WithCancel(context.Background())
	g.running.Go(func() {
		if err := errors.Join(g.Run(ctx, "test"), g.Close(), file.Close()); err != nil {
			m.tb.Errorf("the generator ended: %v", err)
		}
	})
	g.stop = sync.OnceFunc(func() { cancel(); g.running.Wait() })
	m.tb.Cleanup(g.stop)
	return g
}

// issuing asks for IDs again and again until the generator is stopped. Errors that do not match but are a fault.
func (g *generator) issuing(but error) {
	g.running.Go(func() { g.issue(but) })
}

func (g *generator) issue(but error) {
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for {
		ranges, err := g.Take(context.Background(), 50)
		g.m.ids.Add(ranges...)
		switch {
		case errors.Is(err, snowflake.ErrClosed):
			return
		case err != nil && (but == nil || !errors.Is(err, but)):
			g.m.tb.Errorf("it issues nothing: %v", err)
			return
		}
		<-pause.C
	}
}

// reports makes the generator report until ZooKeeper has confirmed its worker, which it returns.
func (g *generator) reports() int64 {
	g.m.tb.Helper()
	before := g.registry.written.Load()
	testkit.Eventually(g.m.tb, "it reports", func() bool {
		g.Verify(within(g.m.tb))
		return g.registry.written.Load() > before
	})
	return g.Worker()
}

// holds demands that ZooKeeper says who the generator is: one record, of its incarnation, and a temporary node
// of its session.
func (g *generator) holds(tb testing.TB, s *site) {
	tb.Helper()
	saved, _ := g.file.Saved()
	testkit.Eventually(tb, "the temporary node is of the holder and its session", func() bool {
		session, text := s.owner(tb, "a")
		return session == g.registry.session() && parse[running](tb, text).Incarnation == saved.Incarnation
	})
	records := s.children(tb, s.path("leaf_forever"))
	if d := parse[data](tb, records["a-0000000000"]); len(records) != 1 || d.Incarnation != saved.Incarnation {
		tb.Errorf("the records are %v; want one, of %s", records, saved.Incarnation)
	}
}

// unique fails the test if an ID was issued twice.
func (m *machine) unique() {
	if _, err := m.ids.Check(); err != nil {
		m.tb.Error(err)
	}
}

// attended is a registry that is claimed before anything else is asked of it, and that counts the calls which
// wrote and which failed.
type attended struct {
	*Registry
	claimed         bool // of the one goroutine that asks
	written, failed atomic.Int64
}

// List implements [snowflake.Registry].
func (a *attended) List(ctx context.Context) (entries []snowflake.Entry, err error) {
	if !a.claimed {
		_, _, err = a.Claim(ctx, "test", true)
	}
	if err == nil {
		a.claimed = true
		entries, err = a.Registry.List(ctx)
	}
	if err != nil {
		a.failed.Add(1)
	}
	return entries, err
}

// Add implements [snowflake.Registry].
func (a *attended) Add(ctx context.Context, r snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	e, err := a.Registry.Add(ctx, r, c)
	a.count(err)
	return e, err
}

// Put implements [snowflake.Registry].
func (a *attended) Put(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
	version, err := a.Registry.Put(ctx, r, version)
	a.count(err)
	return version, err
}

func (a *attended) count(err error) {
	if err != nil {
		a.failed.Add(1)
	} else {
		a.written.Add(1)
	}
}

// session is the present one.
func (a *attended) session() int64 { return a.conn().SessionID() }

// server is the address of the present one.
func (a *attended) server() string { return a.conn().Server() }

func (a *attended) conn() *zk.Conn {
	a.link.mu.Lock()
	defer a.link.mu.Unlock()
	return a.link.client.conn
}
