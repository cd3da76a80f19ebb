package installation

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fakePlace is a database or a ZooKeeper.
type fakePlace struct {
	name string

	mu     sync.Mutex
	of, id string
	err    error
	asked  int
	before func() // is called before the next Claim
}

func (p *fakePlace) Name() string { return p.name }

func (p *fakePlace) Repair(installation, id string) string {
	if installation == "" {
		return "free it"
	}
	return "give it to " + installation + " as " + id
}

func (p *fakePlace) Claim(_ context.Context, installation string, first bool) (of, id string, err error) {
	var before func()
	p.set(func() { before, p.before = p.before, nil })
	if before != nil {
		before()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked++; p.err != nil {
		return "", "", p.err
	}
	if p.of == "" && first {
		p.of, p.id = installation, "ID of "+p.name
	}
	return p.of, p.id, nil
}

func (p *fakePlace) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

type fakeDatabase struct {
	allocator.Numbers
	*fakePlace
	opened int
}

func (d *fakeDatabase) Open(context.Context) error { d.opened++; return nil }

type fakeZooKeeper struct {
	snowflake.Registry
	*fakePlace
}

func (fakeZooKeeper) List(context.Context) ([]snowflake.Entry, error) { return nil, nil }

func newDatabase(name string) *fakeDatabase { return &fakeDatabase{fakePlace: &fakePlace{name: name}} }

func newZooKeeper(name string) *fakeZooKeeper {
	return &fakeZooKeeper{fakePlace: &fakePlace{name: name}}
}

// site is a NATS and what generators are given beside it.
type site struct {
	t      *testing.T
	server *embedded.Server
	layout snowflake.Layout
	db     *fakeDatabase
	zk     *fakeZooKeeper
}

func newSite(t *testing.T) *site {
	return &site{t: t, server: natskit.Start(t), layout: snowflake.DefaultLayout()}
}

func (s *site) state() kvstore.Config { return s.stateAt(s.server.ClientURL()) }

// stateAt is state through another address.
func (s *site) stateAt(url string) kvstore.Config {
	s.t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		s.t.Fatal(err)
	}
	return kvstore.Config{JS: js, Log: testkit.Quiet}
}

// member is a generator that starts in a folder.
func (s *site) member(f *Folder) *member {
	s.t.Helper()
	c := Config{State: s.state(), Folder: f}
	if s.db != nil {
		c.Database = s.db
	}
	if s.zk != nil {
		c.Workers, c.Administration = s.zk, s.zk
	}
	m, err := newMember(c, s.layout)
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

func (s *site) folder() *Folder {
	s.t.Helper()
	return openFolder(s.t, s.t.TempDir(), "")
}

func isNew(t *testing.T, f *Folder) bool {
	t.Helper()
	line, err := f.read(fileInstallation)
	if err != nil {
		t.Fatal(err)
	}
	return line == ""
}

func mayBegin(context.Context) error { return nil }

// joins lets a generator join, which must succeed, and returns the installation.
func (s *site) joins(f *Folder) (id string) {
	s.t.Helper()
	identity, err := s.member(f).join(s.t.Context(), mayBegin)
	if err != nil || identity.Installation == "" || identity.Created.IsZero() {
		s.t.Fatalf("join: %+v, %v", identity, err)
	}
	return identity.Installation
}

// opens lets a generator join and open what keeps the tags.
func (s *site) opens(f *Folder) *member {
	s.t.Helper()
	m := s.member(f)
	_, err := m.join(s.t.Context(), mayBegin)
	if err == nil {
		err = m.open(s.t.Context())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// fails lets a generator try to join. It must be refused, or wait.
func (s *site) fails(f *Folder, refused bool, say ...string) {
	s.t.Helper()
	identity, err := s.member(f).join(s.t.Context(), mayBegin)
	if err == nil {
		s.t.Fatalf("it joined %+v, and should say %q", identity, say)
	}
	for _, text := range say {
		if errors.Is(err, allocator.ErrRefused) != refused || !strings.Contains(err.Error(), text) {
			s.t.Errorf("want refused %v and %q: %v", refused, text, err)
		}
	}
}

// record returns the installation's record; the ID is empty if there is none.
func (s *site) record() kvstore.Installation {
	s.t.Helper()
	have, _, err := kvstore.ReadInstallation(s.t.Context(), s.state())
	if err != nil {
		s.t.Fatal(err)
	}
	return have
}
