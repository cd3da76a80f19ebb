package installation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

func TestJoin(t *testing.T) {
	s := newSite(t)
	s.db, s.zk = newDatabase("db"), newZooKeeper("zk")
	f := s.folder()
	id := s.joins(f)
	have := s.record()
	if have.ID != id || have.Database != "ID of db" || have.ZooKeeper != "ID of zk" || s.db.of != id || s.zk.of != id {
		t.Errorf("the record is %+v; the database belongs to %q, ZooKeeper to %q", have, s.db.of, s.zk.of)
	}
	if of, store, err := f.belongs(); of != id || store != KindMySQL || err != nil {
		t.Errorf("the folder belongs to %q, with tags in %q, %v", of, store, err)
	}
	// Neither is asked by a start that knows both.
	s.db.err, s.zk.err = errGone, errGone
	if again := s.joins(f); again != id || !reflect.DeepEqual(s.record(), have) {
		t.Errorf("joined %q again, the record is %+v", again, s.record())
	}
	// A new folder does not join before the database has said whose it is.
	s.fails(s.folder(), false, errGone.Error())
}

// A wrong --data-dir, or a lost disk, shows: the store is reported that an embedded server began with
// nothing, also where its cluster has the installation. One with streams of any kind is not empty.
func TestEmptyStoreIsReported(t *testing.T) {
	s := newSite(t)
	s.joins(s.folder())
	for _, empty := range []bool{true, false} {
		path := t.TempDir()
		if !empty {
			if err := os.MkdirAll(filepath.Join(path, "nats", "jetstream", "$G", "streams", "other"), 0o750); err != nil {
				t.Fatal(err)
			}
		}
		m := s.member(openFolder(t, path, ""))
		var said bytes.Buffer
		m.Server, m.State.Log = s.server, slog.New(slog.NewTextHandler(&said, nil))
		if _, err := m.join(t.Context(), mayBegin); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(said.String(), "created an empty store\" dir="+path); got != empty {
			t.Errorf("empty %v: the log has %q", empty, said.String())
		}
	}
}

// What an operator must fix in a place that the generator has never used is a mistake in its configuration. Later the
// operator may be amid a change, so the generator waits.
func TestMisconfigured(t *testing.T) {
	s := newSite(t)
	s.db, s.zk = newDatabase("db"), newZooKeeper("zk")
	wrong := fmt.Errorf("%w: wrong password", allocator.ErrMisconfigured)
	s.db.err = wrong
	s.fails(s.folder(), true, "wrong password")
	s.db.err, s.zk.err = nil, fmt.Errorf("%w: no right", snowflake.ErrMisconfigured)
	s.fails(s.folder(), true, "no right")
	s.zk.err = nil
	f := s.folder()
	s.joins(f)
	s.db.err = wrong
	m := s.member(f)
	if _, err := m.join(t.Context(), mayBegin); err != nil {
		t.Fatal(err)
	}
	if err := m.open(t.Context()); !errors.Is(err, wrong) || errors.Is(err, allocator.ErrRefused) {
		t.Errorf("open: %v", err)
	}
}

// TestJoinMeanwhile: another generator makes the record, and claims database and ZooKeeper, between a start's looks at
// these.
func TestJoinMeanwhile(t *testing.T) {
	for name, place := range map[string]func(*site) *fakePlace{
		"database":  func(s *site) *fakePlace { return s.db.fakePlace },
		"ZooKeeper": func(s *site) *fakePlace { return s.zk.fakePlace },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.db, s.zk = newDatabase("db"), newZooKeeper("zk")
			var first string
			meanwhile := func() { first = s.joins(s.folder()) }
			identity, err := s.member(s.folder()).join(t.Context(), func(context.Context) error { // then it looks again
				place(s).before = meanwhile
				return nil
			})
			if err != nil || identity.Installation != first {
				t.Errorf("joined %+v, %v, and the other one is %s", identity, err, first)
			}
		})
	}
}

// Where the database or ZooKeeper belongs to an installation that this NATS does not know, nothing is created. If another
// generator knows that the installation lost its record, a new one waits with it.
func TestNothingIsCreatedBesideAnother(t *testing.T) {
	for name, theirs := range map[string]func(s *site){
		"database":                        func(s *site) { s.db.of, s.db.id = "B", "D" },
		"ZooKeeper":                       func(s *site) { s.zk.of, s.zk.id = "B", "Z" },
		"ZooKeeper, the database is away": func(s *site) { s.zk.of, s.zk.id, s.db.err = "B", "Z", errGone },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.db, s.zk = newDatabase("db"), newZooKeeper("zk")
			theirs(s)
			f := s.folder()
			s.fails(f, true, "belongs to installation B", "no installation yet", "leaf restore", "free it")
			lost := errors.New("lost")
			_, err := s.member(f).join(t.Context(), func(context.Context) error { return lost })
			if !errors.Is(err, lost) || errors.Is(err, allocator.ErrRefused) {
				t.Errorf("while B is heard: %v", err)
			}
			for stream := range s.state().JS.StreamNames(t.Context()).Name() {
				t.Errorf("it made the stream %s", stream)
			}
			if have := s.record(); have.ID != "" || !isNew(t, f) || s.db.of+s.zk.of != "B" {
				t.Errorf("the record is %+v; the folder is new: %v; the database belongs to %q, ZooKeeper to %q", have, isNew(t, f), s.db.of, s.zk.of)
			}
		})
	}
}

func TestJoinRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*site)
		known  string
		say    string
	}{
		"epoch":    {func(s *site) { s.layout.Epoch = 5 }, "", "--epoch"},
		"bits":     {func(s *site) { s.layout.WorkerBits, s.layout.SequenceBits = 8, 14 }, "", "worker bits"},
		"store":    {func(s *site) { s.db = newDatabase("db") }, "", "the store of tags (--mysql) is kv there and mysql here"},
		"registry": {func(s *site) { s.zk = newZooKeeper("zk") }, "", "the registry of workers (--zookeeper) is kv there and zookeeper here"},
		"folder":   {func(*site) {}, "another", "--data-dir"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.joins(s.folder())
			c.change(s)
			f := s.folder()
			if err := f.write(fileInstallation, c.known); err != nil {
				t.Fatal(err)
			}
			s.fails(f, true, c.say)
		})
	}
}

// A NATS that lost its state must not begin again at 1 under a generator that knows better. Nor does that generator ask
// whether it may create a record: it waits, and joins when the record is there again. An operator lets one make it.
func TestJoinLost(t *testing.T) {
	for _, lost := range []string{"", wire.BucketInstallation} {
		s := newSite(t)
		f := s.folder()
		id := s.opens(f).have.ID
		record := s.record()
		tags := record.Tags
		if lost == "" {
			s.server = natskit.Start(t)
			tags = 1 // no bucket has that, so they count as lost
		} else {
			if err := s.state().JS.DeleteKeyValue(t.Context(), lost); err != nil {
				t.Fatal(err)
			}
		}
		m := s.member(f)
		join := func() (string, error) {
			identity, err := m.join(t.Context(), func(context.Context) error { t.Error("it asked"); return nil })
			return identity.Installation, err
		}
		if _, err := join(); !errors.Is(err, allocator.ErrUnavailable) || !strings.Contains(err.Error(), id) {
			t.Errorf("join: %v; want it to wait for %s", err, id)
		}
		if s.record().ID != "" {
			t.Error("there is a record")
		}
		if err := kvstore.CreateInstallation(t.Context(), s.state(), record); err != nil {
			t.Fatal(err)
		}
		if got, err := join(); got != id {
			t.Errorf("join: %s, %v, want %s", got, err, id)
		}
		if err := s.state().JS.DeleteKeyValue(t.Context(), wire.BucketInstallation); err != nil {
			t.Fatal(err)
		}
		m.Adopt = true
		if got, err := join(); got != id || s.record().Tags != tags {
			t.Errorf("adopting: %s, %v, want %s; the record is %+v", got, err, id, s.record())
		}
	}
}

// The record is not made again with a layout that is not the one of the folder's worker, nor for a folder that names
// no installation.
func TestAdoptRefused(t *testing.T) {
	s := newSite(t)
	f := s.folder()
	id := s.joins(f)
	if err := f.Worker.Save(snowflake.Saved{Installation: id, Layout: s.layout, Place: f.Place}); err != nil {
		t.Fatal(err)
	}
	s.server = natskit.Start(t)
	s.layout.Epoch++
	m := s.member(f)
	m.Adopt = true
	_, err := m.join(t.Context(), mayBegin)
	if !errors.Is(err, allocator.ErrRefused) || !strings.Contains(err.Error(), "--epoch") || s.record().ID != "" {
		t.Errorf("join: %v", err)
	}
	waits := errors.New("waits")
	m = s.member(s.folder())
	m.Adopt = true
	_, err = m.join(t.Context(), func(context.Context) error { return waits })
	if !errors.Is(err, waits) || s.record().ID != "" {
		t.Errorf("a folder of no installation: %v", err)
	}
	_, err = m.join(t.Context(), mayBegin)
	if !errors.Is(err, allocator.ErrRefused) || !strings.Contains(err.Error(), "--data-dir") || s.record().ID != "" {
		t.Errorf("a folder of no installation, without others: %v", err)
	}
}

// A folder whose installation keeps its tags in a database does not make the record of one without: the names that only
// the database has would be new.
func TestAdoptWithoutTheDatabase(t *testing.T) {
	s := newSite(t)
	s.db = newDatabase("db")
	f := s.folder()
	s.opens(f)
	s.server, s.db = natskit.Start(t), nil
	m := s.member(f)
	m.Adopt = true
	_, err := m.join(t.Context(), mayBegin)
	if !errors.Is(err, allocator.ErrRefused) || !strings.Contains(err.Error(), "--mysql") || s.record().ID != "" {
		t.Errorf("join: %v; the record is %+v", err, s.record())
	}
}

// A damaged record is refused. One that JetStream lost alone, and its tags not, is not made a second time.
func TestJoinWithoutARecord(t *testing.T) {
	s := newSite(t)
	s.joins(s.folder())
	kv, err := s.state().JS.KeyValue(t.Context(), wire.BucketInstallation)
	if err == nil {
		_, err = kv.PutString(t.Context(), kvstore.InstallationKey, "{}")
	}
	if err != nil {
		t.Fatal(err)
	}
	s.fails(s.folder(), true, "damaged")

	s = newSite(t)
	s.opens(s.folder())
	if err := s.state().JS.DeleteKeyValue(t.Context(), wire.BucketInstallation); err != nil {
		t.Fatal(err)
	}
	s.fails(s.folder(), false, "lost the installation's record")
	if s.record().ID != "" {
		t.Error("there is a record")
	}
}

// A record that comes while a generator asks whether it may make one is the one that counts.
func TestJoinLooksAgain(t *testing.T) {
	s := newSite(t)
	lost := errors.New("lost")
	m := s.member(s.folder())
	if _, err := m.join(t.Context(), func(context.Context) error { return lost }); !errors.Is(err, lost) || s.record().ID != "" {
		t.Errorf("join: %v, want %v; the record is %+v", err, lost, s.record())
	}
	// Also where the time is used up, so that the record cannot be read again.
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := m.join(ctx, func(context.Context) error { cancel(); return lost }); !errors.Is(err, lost) {
		t.Errorf("join: %v, want %v", err, lost)
	}
	var first string
	identity, err := m.join(t.Context(), func(context.Context) error { first = s.joins(s.folder()); return lost })
	if err != nil || identity.Installation != first {
		t.Errorf("join: %+v, %v; want %s", identity, err, first)
	}
}

// A database that has another owner now is not opened.
func TestOpenLooksAgain(t *testing.T) {
	for name, change := range map[string]func(*fakePlace){
		"another installation's": func(p *fakePlace) { p.of = "B" },
		"another database":       func(p *fakePlace) { p.id = "another" },
		"emptied":                func(p *fakePlace) { p.of, p.id = "", "" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.db = newDatabase("db")
			f := s.folder()
			s.joins(f)
			change(s.db.fakePlace)
			m := s.member(f)
			if _, err := m.join(t.Context(), mayBegin); err != nil {
				t.Fatal(err)
			}
			if err := m.open(t.Context()); !errors.Is(err, allocator.ErrRefused) || s.db.opened > 0 {
				t.Errorf("open: %v; opened %d times", err, s.db.opened)
			}
		})
	}
}

// The folder's worker is not used where the start will be refused: with another store of tags, or another layout.
func TestResumes(t *testing.T) {
	s := newSite(t)
	f := s.folder()
	id := s.joins(f)
	if got := s.member(f).resumes(); got != id {
		t.Errorf("without a database: %q", got)
	}
	if err := f.Worker.Save(snowflake.Saved{Installation: id, Layout: s.layout, Place: f.Place}); err != nil {
		t.Fatal(err)
	}
	if got := s.member(f).resumes(); got != id {
		t.Errorf("with a worker: %q", got)
	}
	s.layout.Epoch++
	if got := s.member(f).resumes(); got != "" {
		t.Errorf("with another layout: %q", got)
	}
	s.layout.Epoch--
	s.db = newDatabase("new")
	if got := s.member(f).resumes(); got != "" {
		t.Errorf("with a database: %q", got)
	}
}

// A new installation needs a layout that lasts. One that has its record goes on until the end.
func TestLayoutThatEnds(t *testing.T) {
	s := newSite(t)
	s.layout.TimeBits, s.layout.SequenceBits = 39, 14 // 17 years
	const life, day = 1 << 39, 24 * 3600 * 1000
	s.layout.Epoch = time.Now().UnixMilli() - life + 364*day
	s.fails(s.folder(), true, "must last for a year", "--id-bits", "leaf layout")
	if have := s.record(); have.ID != "" {
		t.Errorf("it has made the record %+v", have)
	}
	s.layout.Epoch = time.Now().UnixMilli() - life + 366*day
	id := s.joins(s.folder())
	if _, err := kvstore.ChangeInstallation(t.Context(), s.state(), func(have *kvstore.Installation) error {
		have.Epoch -= 366 * day // as if so long had passed
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s.layout.Epoch -= 366 * day
	if again := s.joins(s.folder()); again != id {
		t.Errorf("it joined %s, want %s", again, id)
	}
}
