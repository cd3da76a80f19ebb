package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// machine is one on which a generator runs, and later the next.
type machine struct {
	tb   testing.TB
	site *site // by the machine's way to ZooKeeper
	node string
	disk *snowflaketest.Disk // real ones would be what a test with many machines waits for
	// config is what is not the default. A report comes each quarter of Reserve.
	config snowflake.Config
	ids    *allocatortest.Checker
}

// newMachine puts all IDs that are issued there into ids.
func newMachine(tb testing.TB, s *site, node string, ids *allocatortest.Checker) *machine {
	tb.Helper()
	return &machine{
		tb: tb, site: s, node: node, disk: snowflaketest.NewDisk(), ids: ids,
		config: snowflake.Config{Reserve: 2 * time.Second, LastWorker: 1023},
	}
}

// generator is a generator that runs.
type generator struct {
	*snowflake.Generator
	m        *machine
	file     *snowflake.File
	registry *attended
	session  *Registry     // that ends with the generator; nil: it goes on
	done     chan struct{} // closed when Run has ended
	stopOnce sync.Once
	cancel   context.CancelFunc
	last     atomic.Int64 // ID

	mu     sync.Mutex
	events []snowflake.Event
	runErr error
}

// start starts a generator, which the test stops at its end at the latest.
func (m *machine) start() *generator {
	m.tb.Helper()
	r, err := newRegistry(Config{Hosts: m.site.hosts, Name: m.site.name, Node: m.node, Port: "4222", Log: testkit.Quiet})
	if err != nil {
		m.tb.Fatal(err)
	}
	g := m.startOn(&attended{Registry: r})
	g.session = r
	m.tb.Cleanup(g.stop)
	return g
}

// startOn starts a generator on a registry, which it leaves open.
func (m *machine) startOn(r *attended) *generator {
	m.tb.Helper()
	m.disk = m.disk.Kill()
	file, err := snowflake.NewFile(m.disk)
	if err != nil {
		m.tb.Fatal(err)
	}
	g := &generator{m: m, file: file, done: make(chan struct{}), registry: r}
	cfg := m.config
	cfg.Layout, cfg.Registry, cfg.File, cfg.Place, cfg.Node = snowflake.DefaultLayout(), g.registry, file, "inode:1", m.node
	cfg.Log, cfg.Notify = testkit.Quiet, g.notify
	g.Generator = snowflake.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	go func() {
		defer close(g.done)
		g.runErr = g.Run(ctx, "test")
	}()
	return g
}

// stop stops the generator in order.
func (g *generator) stop() {
	g.stopOnce.Do(func() {
		g.cancel()
		<-g.done
		if err := errors.Join(g.runErr, g.Close(), g.file.Close()); err != nil {
			g.m.tb.Errorf("%s: %v", g.m.node, err)
		}
		if g.session != nil {
			g.session.Close()
		}
	})
}

// notify is called under the generator's lock.
func (g *generator) notify(e snowflake.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = append(g.events, e)
}

// told returns the events of a kind that were told so far.
func told[E snowflake.Event](g *generator) (found []E) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.events {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// issue takes n IDs, and returns the error where there are none.
func (g *generator) issue(n int64) error {
	ranges, err := g.Take(context.Background(), n)
	g.m.ids.Add(ranges...)
	for _, r := range ranges {
		for last := g.last.Load(); r.Last > last && !g.last.CompareAndSwap(last, r.Last); last = g.last.Load() {
		}
	}
	return err
}

// latest is the time of the last ID that was issued.
func (g *generator) latest() int64 {
	layout := snowflake.DefaultLayout()
	return g.last.Load()>>(layout.WorkerBits+layout.SequenceBits) + layout.Epoch
}

// issuing issues until the generator is stopped, or the function is called that
// it returns. Errors that do not match but are a fault.
func (g *generator) issuing(but error) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		pause := time.NewTicker(10 * time.Millisecond) // it is a matter of when, not of how many
		defer pause.Stop()
		for ctx.Err() == nil {
			switch err := g.issue(50); {
			case errors.Is(err, snowflake.ErrClosed):
				return
			case err != nil && (but == nil || !errors.Is(err, but)):
				g.m.tb.Errorf("%s issues nothing: %v", g.m.node, err)
				return
			}
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
		}
	})
	end = sync.OnceFunc(func() { cancel(); wg.Wait() })
	g.m.tb.Cleanup(end)
	return end
}

// registered waits until the generator holds a worker of which ZooKeeper knows,
// and issues. It returns the worker.
func (g *generator) registered() int64 {
	g.m.tb.Helper()
	before := g.registry.written.Load()
	testkit.Eventually(g.m.tb, g.m.node+" reports", func() bool { return g.registry.written.Load() > before })
	testkit.Eventually(g.m.tb, g.m.node+" issues", func() bool { return g.issue(1) == nil })
	return g.Worker()
}

// reports makes the generator report out of turn, as soon as it can.
func (g *generator) reports() {
	g.m.tb.Helper()
	ctx, before := within(g.m.tb), g.registry.written.Load()
	testkit.Eventually(g.m.tb, g.m.node+" reports", func() bool {
		g.Verify(ctx)
		return g.registry.written.Load() > before
	})
}

// first waits for the first ID, and returns the worker that it is of.
func (g *generator) first() int64 {
	g.m.tb.Helper()
	testkit.Eventually(g.m.tb, g.m.node+" issues", func() bool { return g.issue(1) == nil })
	return g.Worker()
}

// holds demands that the generator has the worker still, and has never lost it,
// and that ZooKeeper says so: one record, and a temporary node of its session.
func (g *generator) holds(tb testing.TB, s *site, worker int64) {
	tb.Helper()
	g.reports()
	if now := g.Worker(); now != worker {
		tb.Errorf("worker %d; it was %d", now, worker)
	}
	if acquired, lost := told[snowflake.WorkerAcquired](g), told[snowflake.WorkerLost](g); len(acquired) != 1 || len(lost) > 0 {
		tb.Errorf("acquired %+v, lost %+v", acquired, lost)
	}
	testkit.Eventually(tb, "the temporary node is of its session", func() bool {
		session, _ := s.owner(tb, g.m.node)
		return session == g.registry.session() && s.incarnations(tb)[g.m.node] == g.incarnation()
	})
	records := s.records(tb)
	if d := records[g.m.node+"-0000000000"]; len(records) != 1 || d.Incarnation != g.incarnation() {
		tb.Errorf("the records are %+v; want one, of %s", records, g.incarnation())
	}
}

// incarnation is what the generator's file says it is.
func (g *generator) incarnation() string {
	s, _ := g.file.Saved()
	return s.Incarnation
}

// unique fails the test if an ID was issued twice, and returns how many were.
func unique(tb testing.TB, ids *allocatortest.Checker) int64 {
	tb.Helper()
	n, err := ids.Check()
	if err != nil {
		tb.Error(err)
	}
	return n
}

// attended is a registry that is claimed before anything else is asked of it,
// and that counts the calls which wrote and which failed.
type attended struct {
	*Registry
	claimed         bool // of the one goroutine that asks
	written, failed atomic.Int64
}

// List implements [snowflake.Registry].
func (a *attended) List(ctx context.Context) ([]snowflake.Entry, error) {
	if !a.claimed {
		if _, _, err := a.Claim(ctx, "test", true); err != nil {
			a.failed.Add(1)
			return nil, err
		}
		a.claimed = true
	}
	entries, err := a.Registry.List(ctx)
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
func (a *attended) session() int64 {
	a.link.mu.Lock()
	defer a.link.mu.Unlock()
	return a.link.client.conn.SessionID()
}

// server is the address of the present one.
func (a *attended) server() string {
	a.link.mu.Lock()
	defer a.link.mu.Unlock()
	return a.link.client.conn.Server()
}

// again is the same place for an operator who connects anew.
func (s *site) again(tb testing.TB) *site {
	tb.Helper()
	fresh := newSite(tb, s.hosts)
	fresh.name = s.name
	return fresh
}

// records returns what the nodes of the records say, by the nodes' names.
func (s *site) records(tb testing.TB) map[string]data {
	tb.Helper()
	found := make(map[string]data)
	for name, text := range s.children(tb, s.path("leaf_forever")) {
		var d data
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			tb.Errorf("%s: %v: %q", name, err, text)
		}
		found[name] = d
	}
	return found
}

// incarnations returns those of the temporary nodes, by the names of the
// generators.
func (s *site) incarnations(tb testing.TB) map[string]string {
	tb.Helper()
	found := make(map[string]string)
	for name, text := range s.children(tb, s.path("leaf_temporary")) {
		var r running
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			tb.Errorf("%s: %v: %q", name, err, text)
		}
		found[name] = r.Incarnation
	}
	return found
}
