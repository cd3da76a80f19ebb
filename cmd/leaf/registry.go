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

// claimWorkers makes sure that the ZooKeeper is this installation's, and the one that it keeps these
// workers in. It returns what ZooKeeper has.
func (m *member) claimWorkers(ctx context.Context) (have zookeeper.Installation, err error) {
	select {
	case m.claiming <- struct{}{}:
		defer func() { <-m.claiming }()
	case <-ctx.Done():
		return have, fmt.Errorf("it is not known yet whose the workers in ZooKeeper are: %w", ctx.Err())
	}
	if m.workers.ID != "" {
		return m.workers, nil
	}
	known, _ := m.have.ZooKeeper(m.first, m.last)
	want := zookeeper.Installation{ID: m.have.ID, Layout: m.want.Layout, Created: m.have.Created}
	if have, err = m.zk.Claim(ctx, want, known.ID); err != nil {
		return have, err
	}
	if have.ID != m.have.ID {
		return have, fmt.Errorf("%w: the workers in ZooKeeper (%s) belong to installation %s, and this NATS to installation %s: "+
			"join the NATS of %[3]s (--server) with a new --data-dir, or give %[4]s a ZooKeeper or a --zookeeper-name of its own",
			snowflake.ErrRefused, m.zk.Name(), have.ID, m.have.ID)
	}
	_, err = kvstore.PinZooKeeper(ctx, m.state, kvstore.ZooKeeper{
		ID: have.ZooKeeper, Name: m.zk.Name(), Installation: have.ID, First: m.first, Last: m.last,
	})
	if errors.Is(err, allocator.ErrRefused) {
		err = fmt.Errorf("%w: %w", snowflake.ErrRefused, err)
	}
	if err == nil {
		m.workers = have
	}
	return have, err
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
