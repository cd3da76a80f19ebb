package installation

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/snowflake"
)

// Kinds of what keeps the tags and the workers, as the installation's record has them.
const (
	KindKV        = "kv" // JetStream: both
	KindMySQL     = "mysql"
	KindZooKeeper = "zookeeper"
)

// member is a generator as part of its installation. One goroutine calls its methods; only
// [claimed.List] may be called by others, after join has succeeded.
type member struct {
	Config
	records *kvstore.Records

	want                kvstore.Installation // the configuration, as it would be on record
	database, zooKeeper *use                 // nil: not used
	known, store        string               // the installation of the data folder, and its kind of store; empty: none
	have                kvstore.Installation // the record, once it has joined
	adopting            time.Time            // the first attempt to make the record again
}

func newMember(c Config, layout snowflake.Layout) (*member, error) {
	m := &member{Config: c, records: kvstore.NewRecords(c.State)}
	m.want = kvstore.Installation{Store: KindKV, Registry: KindKV, Layout: layout}
	var err error
	if m.known, m.store, err = c.Folder.belongs(); err != nil {
		return nil, err
	}
	if c.Database != nil {
		m.want.Store, m.database = KindMySQL, database(c.Database)
	}
	if c.Workers != nil {
		m.want.Registry, m.zooKeeper = KindZooKeeper, zooKeeper(c.Workers)
	}
	return m, nil
}

// resumes returns the installation of the worker that may be used before join. None may where join
// refuses the configuration: the worker has another layout than was asked for, or the tags are kept
// elsewhere.
func (m *member) resumes() string {
	saved, ok := m.Folder.Worker.Saved()
	if m.store != m.want.Store || ok && saved.Layout != m.want.Layout {
		return ""
	}
	return m.known
}

// join enters the installation, or makes its record, and makes the data folder belong to it. It
// implements [generator.Config.Join]. It asks only places that this generator has not used: a wrong
// password there is a mistake in the configuration. Later it may be a change that is not finished,
// and the generator waits.
func (m *member) join(ctx context.Context, begin func(context.Context) error) (generator.Identity, error) {
	identity, err := m.tryJoin(ctx, begin)
	if errors.Is(err, allocator.ErrMisconfigured) { // the registry has the same error
		err = fmt.Errorf("%w: %w", allocator.ErrRefused, err)
	}
	return identity, err
}

func (m *member) tryJoin(ctx context.Context, begin func(context.Context) error) (generator.Identity, error) {
	var lost error
	for begun := false; ; {
		f := m.look(ctx)
		taken := func() bool { return f.record == free && errors.Is(f.placesErr(), allocator.ErrRefused) }
		if taken() {
			f = m.look(ctx) // another generator may have made the record since, and claimed the place for it
		}
		then, err := f.decide()
		switch {
		case then == join:
			return m.enter(ctx, f)
		case m.Adopt && m.known != "" && f.record&(free|tagsLeft) != 0:
			err = m.adopt(ctx, f)
		case lost != nil: // begin may have used up the time of the context
			err = lost
		case !begun && m.known == "" && (then == create || f.record == tagsLeft || taken()):
			// Where tags are left, or a place is another installation's, begin knows whether an
			// installation lost its record. Look again, also after an error: a replica that did not
			// have the record yet may have answered.
			begun, lost, err = true, begin(ctx), nil
		case then == create && m.Adopt: // a mistyped --data-dir must not begin at 1
			err = fmt.Errorf("%w: --adopt makes the record of the data folder's installation again, and this folder "+
				"names none: name the right --data-dir. For a new installation, remove --adopt", allocator.ErrRefused)
		case then == create:
			err = m.create(ctx)
		}
		if err != nil {
			return generator.Identity{}, err
		}
	}
}

// look reads the record, and asks the database and ZooKeeper at the same time, and only if the
// generator may join. A place that the record notes is asked later, before it is used: what needs
// another one works meanwhile. A new data folder must not belong to an installation that has not
// the database, so then it is asked.
func (m *member) look(ctx context.Context) *facts {
	f := &facts{known: m.known, want: m.want}
	m.lookAtRecord(ctx, f)
	if f.record != ours && (f.record != free || m.known != "") {
		return f
	}
	if m.database != nil && (f.have.Database == "" || m.known == "") {
		f.places = append(f.places, look{use: m.database})
	}
	if m.zooKeeper != nil && f.have.ZooKeeper == "" {
		f.places = append(f.places, look{use: m.zooKeeper})
	}
	var looks sync.WaitGroup
	for i := range f.places {
		looks.Go(func() { f.places[i] = f.places[i].use.look(ctx, f.have, false) })
	}
	looks.Wait()
	return f
}

func (m *member) lookAtRecord(ctx context.Context, f *facts) {
	var ok bool
	f.have, ok, f.err = kvstore.ReadInstallation(ctx, m.State)
	tags := false
	if f.err == nil && !ok {
		tags, f.err = kvstore.HasTags(ctx, m.State)
	}
	f.record = ours
	switch {
	case errors.Is(f.err, allocator.ErrRefused):
		f.record = unfit
	case f.err != nil:
		f.record = away
	case tags:
		f.record = tagsLeft
	case !ok:
		f.record = free
	case m.known != "" && m.known != f.have.ID:
		f.record = others
	case len(differences(f.have, m.want)) > 0:
		f.record = otherConfig
	}
}

// create makes the installation's record. Several generators may try: the first record counts.
func (m *member) create(ctx context.Context) error {
	if err := m.want.Layout.CheckLife(time.Now().UnixMilli()); err != nil {
		return fmt.Errorf("%w: %w; `leaf layout` shows what a layout gives", allocator.ErrRefused, err)
	}
	return m.write(ctx, rand.Text(), 0)
}

// adopt makes the record of the installation again that the data folder names. If JetStream has no
// tags, they count as lost.
func (m *member) adopt(ctx context.Context, f *facts) error {
	f.have, f.have.ID, f.have.Store = m.want, m.known, m.store // as far as the folder knows
	if saved, ok := m.Folder.Worker.Saved(); ok {
		f.have.Layout = saved.Layout
	}
	if len(differences(f.have, m.want)) > 0 {
		f.record = otherConfig
		_, err := f.decide()
		return err
	}
	if m.adopting.IsZero() {
		m.adopting = time.Now()
	}
	if err := kvstore.CheckOldStore(ctx, m.State, m.adopting); err != nil {
		return err
	}
	m.State.Log.Warn("making the installation's record again, because of --adopt: remove that flag",
		"installation", m.known)
	tags, err := kvstore.FirstOfTags(ctx, m.State, m.known)
	if err != nil {
		return err
	}
	return m.write(ctx, m.known, tags)
}

func (m *member) write(ctx context.Context, id string, tags uint64) error {
	first := m.want
	first.ID, first.Tags, first.Created = id, tags, time.Now().UTC().Truncate(time.Millisecond)
	return kvstore.CreateInstallation(ctx, m.State, first)
}

// enter claims what is free, and makes the data folder belong to the installation. From then on the
// folder waits for JetStream.
func (m *member) enter(ctx context.Context, f *facts) (identity generator.Identity, err error) {
	m.have = f.have
	for _, l := range f.places {
		if m.have, err = m.admit(ctx, l.use); err != nil {
			return identity, err
		}
	}
	if m.known != m.have.ID {
		if err := m.Folder.write(fileInstallation, m.have.ID+" "+m.have.Store); err != nil {
			return identity, err
		}
	}
	if m.Server != nil && m.Folder.empty { // also in a cluster that has the installation already
		m.Folder.empty = false
		m.State.Log.Info("created an empty store", "dir", m.Folder.Path)
	}
	return generator.Identity{Installation: m.have.ID, Created: m.have.Created}, nil
}

// admit makes sure that a place belongs to the installation, and is the one that the record notes.
// It claims one that is free: several may do so, and what is there then counts. It returns the
// record.
func (m *member) admit(ctx context.Context, u *use) (kvstore.Installation, error) {
	l := u.look(ctx, m.have, *u.noted(&m.have) == "")
	if l.err != nil {
		return m.have, l.err
	}
	return kvstore.ChangeInstallation(ctx, m.State, func(have *kvstore.Installation) error {
		err := l.check(*have) // another generator may have been first, with another place
		if err == nil && l.of == have.ID {
			*u.noted(have) = l.id
		}
		return err
	})
}

// open opens what keeps the tags, after it is known to be the installation's. It implements
// [generator.Config.Open].
func (m *member) open(ctx context.Context) error {
	if err := m.records.Open(ctx, m.have); err != nil || m.database == nil {
		return err
	}
	if _, err := m.admit(ctx, m.database); err != nil {
		return err
	}
	return m.Database.Open(ctx)
}

// claimed is a registry in ZooKeeper. Nothing is asked of it before it is known to be the
// installation's: all writes come after a List. Several goroutines may find that out at once.
type claimed struct {
	Registry
	m    *member
	done atomic.Bool // it is the installation's
}

// List implements [snowflake.Registry].
func (r *claimed) List(ctx context.Context) ([]snowflake.Entry, error) {
	if !r.done.Load() {
		_, err := r.m.admit(ctx, zooKeeper(r.Registry))
		if err != nil {
			return nil, err
		}
		r.done.Store(true)
	}
	return r.Registry.List(ctx)
}
