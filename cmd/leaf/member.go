package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/schema"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/zookeeper"
)

// member is a generator as part of its installation: which NATS, database and
// ZooKeeper it belongs to, and what of it the data folder knows.
type member struct {
	state kvstore.Config
	dir   *dataDir
	kv    *kvstore.Store
	db    *schema.Store       // keeps the tags in place of kv; nil: there is none
	zk    *zookeeper.Registry // keeps the workers in place of JetStream; nil: there is none
	log   *slog.Logger
	want  kvstore.Installation
	// The workers that may be taken.
	first, last int64

	installation string               // that the data folder belongs to; empty: none yet
	trusted      bool                 // the database has said before that it is this installation's
	have         kvstore.Installation // once it has joined
	sole         sole

	claiming sync.Mutex
	workers  zookeeper.Installation // whose those in ZooKeeper are, once that is known
}

// recall reads what the data folder knows.
func (m *member) recall() error {
	var err error
	if m.installation, err = m.dir.read("installation"); err != nil {
		return err
	}
	if m.db != nil {
		database, err := m.dir.read("database")
		if err != nil {
			return err
		}
		m.trusted = database == m.db.Name()
	}
	return m.sole.recall(m.dir)
}

// resumes is the installation whose worker may be used before it is joined. A
// database that was not used before may turn out to be another's, whose workers
// in JetStream are not to be taken.
func (m *member) resumes() string {
	if m.zk == nil && m.db != nil && !m.trusted {
		return ""
	}
	return m.installation
}

// join enters the installation that the data folder belongs to, and makes the
// folder belong to it on the first time. Where the workers are in JetStream it
// waits for a database that was not used before.
func (m *member) join(ctx context.Context) (identity bus.Identity, err error) {
	m.have, err = kvstore.Join(ctx, m.state, m.want, m.installation)
	if errors.Is(err, kvstore.ErrNoJetStream) && m.db != nil && m.zk != nil {
		return m.joinSole(ctx)
	}
	if err == nil {
		err = m.belong()
	}
	if err != nil {
		return identity, err
	}
	identity = bus.Identity{Installation: m.have.ID, Created: m.have.Created}
	if m.zk != nil || m.db == nil || m.trusted {
		return identity, nil
	}
	owner, err := m.claimDatabase(ctx)
	if err != nil || owner == m.have.ID {
		return identity, err
	}
	identity.Foreign = fmt.Errorf("the database belongs to installation %s, and this NATS is installation %s: "+
		"both would take the same workers. Segments are served; for snowflakes too, join the NATS of that installation (--server), "+
		"or give this one a database of its own, or, if that installation is gone for good and what its workers reserved is over, "+
		"UPDATE leaf_installation SET id = '%s' and start again", owner, m.have.ID, m.have.ID)
	return identity, nil
}

// belong makes the data folder belong to the installation.
func (m *member) belong() error {
	if m.have.ID == m.installation {
		return nil
	}
	if err := m.dir.write("installation", m.have.ID); err != nil {
		return err
	}
	m.installation = m.have.ID
	return nil
}

// open opens what keeps the tags, after it is known to be the installation's.
func (m *member) open(ctx context.Context) error {
	if m.db == nil {
		if err := m.checkTags(ctx); err != nil {
			return err
		}
		return m.kv.Open(ctx)
	}
	owner, err := m.claimDatabase(ctx)
	if err != nil {
		return err
	}
	if m.trusted && owner != m.have.ID {
		if err := m.dir.remove("database"); err != nil {
			return err
		}
		return fmt.Errorf("%w: the database was this installation's (%s) and is installation %s's now: was it emptied, or restored? "+
			"The next start takes it for that installation's, and serves no snowflakes of workers in JetStream", allocator.ErrRefused, m.have.ID, owner)
	}
	if err := m.agree(owner); err != nil {
		return err
	}
	return m.db.Open(ctx)
}

// claimDatabase makes sure that the database is the one that the installation
// keeps its tags in, and returns the installation that it belongs to.
func (m *member) claimDatabase(ctx context.Context) (owner string, err error) {
	o, err := m.db.Claim(ctx, m.have.ID, m.have.Database)
	if err == nil && m.have.Database == "" {
		if m.have.Database, err = m.pinDatabase(ctx, o.Store); err != nil {
			return "", err
		}
		o, err = m.db.Claim(ctx, m.have.ID, m.have.Database) // another generator may have been first, with another database
	}
	if err != nil {
		return "", err
	}
	if o.Installation == m.have.ID && !m.trusted {
		return o.Installation, m.dir.write("database", m.db.Name())
	}
	return o.Installation, nil
}

func (m *member) pinDatabase(ctx context.Context, id string) (string, error) {
	if m.sole.used {
		return m.zk.PinDatabase(ctx, id)
	}
	return kvstore.PinDatabase(ctx, m.state, id)
}

// checkTags makes sure that the tags in JetStream are not those of two
// installations: one that shares a ZooKeeper with others shares their callers too. It
// waits for a ZooKeeper that the installation has not used before.
func (m *member) checkTags(ctx context.Context) error {
	if m.zk == nil {
		return nil
	}
	if z, ok := m.have.ZooKeeper(m.first, m.last); ok && z.Installation == m.have.ID {
		return nil
	}
	owner, err := m.claimWorkers(ctx)
	if errors.Is(err, snowflake.ErrRefused) {
		return fmt.Errorf("%w: %w", allocator.ErrRefused, err)
	}
	if err != nil || owner.ID == m.have.ID {
		return err
	}
	return fmt.Errorf("the workers in ZooKeeper (%s) belong to installation %s, and this NATS is installation %s: "+
		"both would hand out the same segments. Snowflakes are served; for segments too, join the NATS of that installation (--server), "+
		"or keep the tags of both in one MySQL (--mysql), or, if the two have nothing to do with each other, give this one a --zookeeper-name of its own",
		m.zk.Name(), owner.ID, m.have.ID)
}

// claimWorkers makes sure that the ZooKeeper is the one that the installation
// keeps its workers in, and returns whose they are.
func (m *member) claimWorkers(ctx context.Context) (zookeeper.Installation, error) {
	m.claiming.Lock() // the two who ask wait for each other gladly
	defer m.claiming.Unlock()
	if m.workers.ID != "" {
		return m.workers, nil
	}
	if m.sole.used {
		owner, err := m.zk.Claim(ctx, m.sole.Installation, m.sole.ZooKeeper)
		if err == nil {
			m.workers = owner
		}
		return owner, err
	}
	known, pinned := m.have.ZooKeeper(m.first, m.last)
	owner, err := m.zk.Claim(ctx, zookeeper.Installation{ID: m.have.ID, Layout: m.want.Layout, Created: m.have.Created}, known.ID)
	if err != nil {
		return owner, err
	}
	if pinned && known.Installation == m.have.ID && owner.ID != m.have.ID {
		return owner, fmt.Errorf("%w: the workers in ZooKeeper (%s) were this installation's (%s) and are installation %s's now: was it restored?",
			snowflake.ErrRefused, m.zk.Name(), m.have.ID, owner.ID)
	}
	_, err = kvstore.PinZooKeeper(ctx, m.state, kvstore.ZooKeeper{ID: owner.ZooKeeper, Installation: owner.ID, First: m.first, Last: m.last})
	if errors.Is(err, allocator.ErrRefused) {
		err = fmt.Errorf("%w: %w", snowflake.ErrRefused, err)
	}
	if err != nil {
		return owner, err
	}
	if owner.ID != m.have.ID {
		m.log.Warn("the workers in ZooKeeper are shared with another installation", "zookeeper", m.zk.Name(), "theirs", owner.ID, "ours", m.have.ID)
	}
	m.workers = owner
	return owner, nil
}

// registry is the registry in ZooKeeper, of which nothing is asked before it is
// known whose it is. All writes come after a List.
type registry struct {
	*zookeeper.Registry
	m *member
}

// List implements [snowflake.Registry].
func (r registry) List(ctx context.Context) ([]snowflake.Entry, error) {
	if _, err := r.m.claimWorkers(ctx); err != nil {
		return nil, err
	}
	return r.Registry.List(ctx)
}
