package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/snowflake"
)

// add makes a node, and keeps it if the worker that its number makes is unclaimed.
func (r *Registry) add(ctx context.Context, rec snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	next := int64(0) // sequence number, if no other generator makes a node
	for {
		all, err := r.read(ctx)
		if err != nil {
			return snowflake.Entry{}, err
		}
		if len(all.damaged) > 0 {
			return snowflake.Entry{}, fmt.Errorf("the worker of the damaged node %s/%s is unknown: stop its holder, then "+
				"delete the node", r.forever, all.damaged[0])
		}
		next = max(next, all.made)
		worker, ok := all.free(c, next)
		if !ok {
			return snowflake.Entry{}, fmt.Errorf("%w: of %d to %d none is free", snowflake.ErrFull, c.First, c.Last)
		}
		name, err := r.create(rec, worker-next)
		if err != nil {
			return snowflake.Entry{}, err
		}
		if all, err = r.read(ctx); err != nil {
			return snowflake.Entry{}, fmt.Errorf("a worker's node was made, and could not be read (the next try finds it): %w",
				err)
		}
		for _, n := range all.nodes {
			// After a long sleep another generator may have taken it over.
			if n.name == name && n.Incarnation == rec.Incarnation && c.Allows(n.Worker) && len(all.damaged) == 0 {
				return n.Entry, nil
			}
		}
		// Other generators made nodes meanwhile, so the number of this one makes another worker.
		_, _, err = r.write(&zk.DeleteRequest{Path: r.forever + "/" + name, Version: 0})
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return snowflake.Entry{}, fmt.Errorf("deleting %s, because another generator has its worker: %w", name, err)
		}
		last, _ := number(name)
		next = last + 1
	}
}

// free returns a worker of the choice that has no record: the one that the number
// of the next node makes with the usual base, or a random one.
func (all records) free(c snowflake.Choice, next int64) (worker int64, ok bool) {
	isFree := func(worker int64) bool {
		_, taken := all.nodes[worker]
		return !taken && c.Allows(worker)
	}
	if worker := c.First + next; isFree(worker) {
		return worker, true
	}
	n := c.Last - c.First + 1
	for i, start := int64(0), rand.Int64N(max(1, n)); i < n; i++ {
		if worker := c.First + (start+i)%n; isFree(worker) {
			return worker, true
		}
	}
	return 0, false
}

// create makes a record's node, and the temporary one with it.
func (r *Registry) create(rec snowflake.Record, base int64) (name string, err error) {
	for _, folder := range []string{r.forever, r.temporary} {
		if err := r.makeHere(folder); err != nil {
			return "", err
		}
	}
	text, err := r.encode(rec, base)
	if err != nil {
		return "", err
	}
	claim, made, err := r.claimName(rec, "")
	if err != nil {
		return "", err
	}
	ops := append([]any{&zk.CreateRequest{
		Path: r.forever + "/" + prefix(r.cfg.Node), Data: text, Acl: open, Flags: zk.FlagSequence,
	}}, claim...)
	done, _, err := r.write(ops...)
	if err != nil {
		return "", fmt.Errorf("making a node in %s (it may have happened): %w", r.forever, err)
	}
	r.own = made
	return path.Base(done[0].String), nil
}

// makeHere makes a folder, if it is not there.
func (r *Registry) makeHere(folder string) error {
	there, _, err := r.link.conn.Exists(folder)
	if err == nil && !there {
		_, _, err = r.write(&zk.CreateRequest{Path: folder, Acl: open})
	}
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("making %s in ZooKeeper: %w", folder, err)
	}
	return nil
}
