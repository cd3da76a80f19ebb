package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/zookeeper"
)

// claimWorkers makes sure that the ZooKeeper is the one that the installation
// keeps its workers in, and returns whose they are. A database and a ZooKeeper that are used
// together must be one installation's: else those who share one of them have
// the same IDs from the other.
func (m *member) claimWorkers(ctx context.Context) (zookeeper.Installation, error) {
	select {
	case m.claiming <- struct{}{}:
		defer func() { <-m.claiming }()
	case <-ctx.Done():
		return zookeeper.Installation{}, fmt.Errorf("it is not known yet whose the workers in ZooKeeper are: %w", ctx.Err())
	}
	if m.workers.ID != "" {
		return m.workers, nil
	}
	owner, err := m.claimZooKeeper(ctx)
	if err == nil {
		m.workers = owner
	}
	return owner, err
}

func (m *member) claimZooKeeper(ctx context.Context) (owner zookeeper.Installation, err error) {
	want := zookeeper.Installation{ID: m.have.ID, Layout: m.want.Layout, Created: m.have.Created}
	if m.db != nil && m.owner != m.have.ID { // theirs must be there first: it is not for us to make
		if _, err := m.zk.Owner(ctx); errors.Is(err, zookeeper.ErrNobodys) {
			return owner, fmt.Errorf("the database belongs to installation %s, and ZooKeeper (%s) to nobody yet: a generator of that installation must use it first", m.owner, m.zk.Name())
		} else if err != nil {
			return owner, err
		}
	}
	known, pinned := m.have.ZooKeeper(m.first, m.last)
	if owner, err = m.zk.Claim(ctx, want, known.ID); err != nil {
		return owner, err
	}
	if m.db != nil && owner.ID != m.owner {
		return owner, m.disagree(owner.ID)
	}
	if pinned && known.Installation == m.have.ID && owner.ID != m.have.ID {
		return owner, fmt.Errorf("%w: the workers in ZooKeeper (%s) were this installation's (%s) and are installation %s's now: was it restored?",
			snowflake.ErrRefused, m.zk.Name(), m.have.ID, owner.ID)
	}
	_, err = kvstore.PinZooKeeper(ctx, m.state, kvstore.ZooKeeper{
		ID: owner.ZooKeeper, Name: m.zk.Name(), Installation: owner.ID, First: m.first, Last: m.last,
	})
	if errors.Is(err, allocator.ErrRefused) {
		err = fmt.Errorf("%w: %w", snowflake.ErrRefused, err)
	}
	if err == nil && owner.ID != m.have.ID {
		m.log.Warn("the workers in ZooKeeper are shared with another installation", "zookeeper", m.zk.Name(), "theirs", owner.ID, "ours", m.have.ID)
	}
	return owner, err
}

// disagree is the error about a database and a ZooKeeper of two installations.
func (m *member) disagree(zookeepers string) error {
	return fmt.Errorf("%w: the database belongs to installation %s, and ZooKeeper (%s) to installation %s: who shares one of them would get the same IDs from the other. "+
		"Name those of one installation with --mysql, --zookeeper and --zookeeper-name; where it has no ZooKeeper yet, a name that nobody uses will do",
		snowflake.ErrRefused, m.owner, m.zk.Name(), zookeepers)
}

// registry is a registry in ZooKeeper, of which nothing is asked before it is
// known whose it is. All writes come after a List.
type registry struct {
	*zookeeper.Registry
	m *member
}

// List implements [snowflake.Registry].
func (r registry) List(ctx context.Context) ([]snowflake.Entry, error) {
	owner, err := r.m.claimWorkers(ctx)
	if err == nil && r.Registry != r.m.zk { // for administration
		_, err = r.Claim(ctx, owner, owner.ZooKeeper)
	}
	if err != nil {
		return nil, err
	}
	return r.Registry.List(ctx)
}
