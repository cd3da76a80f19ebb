package main

import (
	"context"
	"fmt"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/schema"
)

// member is a generator as part of its installation: which NATS and which
// database it belongs to, and what of it the data folder knows.
type member struct {
	state kvstore.Config
	dir   *dataDir
	kv    *kvstore.Store
	db    *schema.Store // keeps the tags in place of kv; nil: there is none
	want  kvstore.Installation

	installation string               // that the data folder belongs to; empty: none yet
	trusted      bool                 // the database has said before that it is this installation's
	have         kvstore.Installation // once it has joined
}

// recall reads what the data folder knows.
func (m *member) recall() error {
	var err error
	if m.installation, err = m.dir.read("installation"); err != nil || m.db == nil {
		return err
	}
	database, err := m.dir.read("database")
	m.trusted = database == m.db.Name()
	return err
}

// resumes is the installation whose worker may be used before it is joined. A
// database that was not used before may turn out to be another's, whose workers
// are not to be taken.
func (m *member) resumes() string {
	if m.db != nil && !m.trusted {
		return ""
	}
	return m.installation
}

// join enters the installation that the data folder belongs to, and makes the
// folder belong to it on the first time. It waits for a database that was not
// used before.
func (m *member) join(ctx context.Context) (identity bus.Identity, err error) {
	if m.have, err = kvstore.Join(ctx, m.state, m.want, m.installation); err != nil {
		return identity, err
	}
	if m.have.ID != m.installation {
		if err := m.dir.write("installation", m.have.ID); err != nil {
			return identity, err
		}
		m.installation = m.have.ID
	}
	identity = bus.Identity{Installation: m.have.ID, Created: m.have.Created}
	if m.db == nil || m.trusted {
		return identity, nil
	}
	owner, err := m.claim(ctx)
	switch {
	case err != nil:
		return identity, err
	case owner == m.have.ID:
		return identity, m.dir.write("database", m.db.Name())
	}
	identity.Foreign = fmt.Errorf("the database belongs to installation %s, and this NATS is installation %s: "+
		"both would take the same workers. Segments are served; for snowflakes too, join the NATS of that installation (--server), "+
		"or give this one a database of its own, or, if that installation is gone for good and what its workers reserved is over, "+
		"UPDATE leaf_installation SET id = '%s' and start again", owner, m.have.ID, m.have.ID)
	return identity, nil
}

// open opens what keeps the tags, after it is known to be the installation's.
func (m *member) open(ctx context.Context) error {
	if m.db == nil {
		return m.kv.Open(ctx)
	}
	owner, err := m.claim(ctx)
	if err != nil {
		return err
	}
	if m.trusted && owner != m.have.ID {
		if err := m.dir.remove("database"); err != nil {
			return err
		}
		return fmt.Errorf("%w: the database was this installation's (%s) and is installation %s's now: was it emptied, or restored? "+
			"The next start takes it for that installation's, and serves no snowflakes", allocator.ErrRefused, m.have.ID, owner)
	}
	return m.db.Open(ctx)
}

// claim makes sure that the database is the one that the installation keeps its
// tags in, and returns the installation that it belongs to.
func (m *member) claim(ctx context.Context) (owner string, err error) {
	o, err := m.db.Claim(ctx, m.have.ID, m.have.Database)
	if err != nil || m.have.Database != "" {
		return o.Installation, err
	}
	pinned, err := kvstore.Pin(ctx, m.state, o.Store)
	if err != nil {
		return "", err
	}
	m.have.Database = pinned
	o, err = m.db.Claim(ctx, m.have.ID, pinned) // another generator may have been first, with another database
	return o.Installation, err
}
