package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/generator"
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

	creates      bool                 // the embedded server has an empty store for it
	installation string               // that the data folder belongs to; empty: none yet
	trusted      bool                 // the database has said before that it is this installation's
	have         kvstore.Installation // once it has joined, as it was then
	database     string               // ID of the one that the installation keeps its tags in; empty: not noted yet
	missed       time.Time            // since when JetStream does not answer; zero: it does, or was not asked

	claiming chan struct{}          // taken by the goroutine that claims ZooKeeper
	workers  zookeeper.Installation // what ZooKeeper has, once it is claimed
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
	return nil
}

// resumes is the installation whose worker may be used before it is joined. With a
// database that was not used before none may: the generator may be refused. Where the worker has
// another layout than was asked for, join refuses that.
func (m *member) resumes(file *snowflake.File) string {
	saved, known := file.Saved()
	if m.db != nil && !m.trusted || known && saved.Layout != m.want.Layout {
		return ""
	}
	return m.installation
}

// join enters the installation that the data folder belongs to, and makes the
// folder belong to it on the first time. It waits for a database that was not
// used before.
func (m *member) join(ctx context.Context, begin func(context.Context) error) (identity generator.Identity, err error) {
	m.have, err = kvstore.Join(ctx, m.state, m.want, m.installation, begin)
	if errors.Is(err, kvstore.ErrNoJetStream) {
		return identity, m.withoutJetStream(time.Now(), err)
	}
	m.missed = time.Time{}
	if err == nil {
		err = m.belong() // from now on this folder waits for JetStream
	}
	if err != nil {
		return identity, err
	}
	if m.creates {
		m.creates = false
		m.log.Info("created an empty store", "dir", m.dir.path)
	}
	m.database = m.have.Database
	identity = generator.Identity{Installation: m.have.ID, Created: m.have.Created}
	if m.db == nil {
		m.kv.Watches(m.have)
		return identity, nil
	}
	if m.trusted {
		return identity, nil
	}
	return identity, m.claimDatabase(ctx)
}

// jetStreamPatience is how long a generator that has never served waits for JetStream: a cluster
// that is starting may not have it yet.
const jetStreamPatience = 5 * time.Second

// withoutJetStream is the error about a NATS whose JetStream does not answer. A generator that has
// never served was given the wrong NATS, and is refused after a while. One that has served waits.
func (m *member) withoutJetStream(now time.Time, err error) error {
	if m.missed.IsZero() {
		m.missed = now
	}
	if m.installation != "" {
		return fmt.Errorf("waiting for JetStream, which has the record of installation %s: %w", m.installation, err)
	}
	if now.Sub(m.missed) < jetStreamPatience {
		return err
	}
	return fmt.Errorf("%w: the NATS server at %s has no JetStream, and Leafbus keeps its state there: "+
		"enable JetStream on that server and for this account, check --js-domain, or leave out --server to embed a NATS server (%w)",
		allocator.ErrRefused, m.state.Conn.ConnectedUrlRedacted(), err)
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
	if err := m.claimDatabase(ctx); err != nil {
		return err
	}
	return m.db.Open(ctx)
}

// claimDatabase makes sure that the database is this installation's, and the one that the
// installation keeps its tags in.
func (m *member) claimDatabase(ctx context.Context) error {
	o, err := m.db.Claim(ctx, m.have.ID, m.database)
	if err == nil && m.database == "" && o.Installation == m.have.ID {
		if m.database, err = kvstore.PinDatabase(ctx, m.state, o.Store); err != nil {
			return err
		}
		o, err = m.db.Claim(ctx, m.have.ID, m.database) // another generator may have been first, with another database
	}
	if err != nil {
		return err
	}
	if o.Installation != m.have.ID {
		// The next start waits until it is known whose the database is.
		return errors.Join(m.dir.remove("database"), fmt.Errorf("%w: the database belongs to installation %s, and this NATS to installation %s: "+
			"join the NATS of %[2]s (--server) with a new --data-dir, or give %[3]s a database of its own (--mysql), or, if %[2]s is gone for good "+
			"and what its workers reserved is over, UPDATE leaf_installation SET id = '%[3]s' and start again", allocator.ErrRefused, o.Installation, m.have.ID))
	}
	if !m.trusted {
		return m.dir.write("database", m.db.Name())
	}
	return nil
}

// checkTags makes sure that the tags in JetStream are not those of two installations: whoever
// shares a ZooKeeper shares callers too. It waits for a ZooKeeper that the installation has not
// used before.
func (m *member) checkTags(ctx context.Context) error {
	if m.zk == nil {
		return nil
	}
	if z, ok := m.have.ZooKeeper(m.first, m.last); ok && z.Installation == m.have.ID {
		return nil
	}
	_, err := m.claimWorkers(ctx)
	if errors.Is(err, snowflake.ErrRefused) {
		err = fmt.Errorf("%w: %w", allocator.ErrRefused, err)
	}
	return err
}
