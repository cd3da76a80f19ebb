package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/snowflake"
)

// data is what the node of a worker's record says. The first three are Leaf's. Times are Unix ms.
type data struct {
	IP        string `json:"ip"`
	Port      string `json:"port"`
	Timestamp int64  `json:"timestamp"` // the holder's last report

	Node          string `json:"node"`
	Incarnation   string `json:"incarnation"`
	ReservedUntil int64  `json:"reserved_until"`
	Acquired      int64  `json:"acquired"`
	Worker        *int64 `json:"worker"`
}

// node is a worker's record and where it is.
type node struct {
	snowflake.Entry // its version is the ID of the last transaction, which never comes again
	name            string
	version         int32 // ZooKeeper's: it begins at 0 when a node is made again
	created         int64 // the ID of the transaction
}

// decode reads a node. A node that this package cannot have written is an error: a
// guess could give a worker to two generators.
func decode(name string, text []byte, s *zk.Stat) (node, error) {
	var d data
	if err := json.Unmarshal(text, &d); err != nil || d.Worker == nil || *d.Worker < 0 || d.Incarnation == "" ||
		d.ReservedUntil <= 0 || s.Mzxid <= 0 {
		return node{}, fmt.Errorf("node %s: %.200q", name, text)
	}
	return node{
		Entry: snowflake.Entry{
			Record: snowflake.Record{
				Worker: *d.Worker, Node: d.Node, Incarnation: d.Incarnation,
				ReservedUntil: d.ReservedUntil, Acquired: d.Acquired, Reported: d.Timestamp,
			},
			Version: uint64(s.Mzxid),
		},
		name: name, version: s.Version, created: s.Czxid,
	}, nil
}

// encode is the data of a record's node. ip and port are its holder's.
func encode(rec snowflake.Record, ip, port string) []byte {
	text, _ := json.Marshal(data{ // never fails for strings and integers
		IP: ip, Port: port, Timestamp: rec.Reported, Node: rec.Node, Incarnation: rec.Incarnation,
		ReservedUntil: rec.ReservedUntil, Acquired: rec.Acquired, Worker: &rec.Worker,
	})
	return text
}

// records are what ZooKeeper has.
type records struct {
	nodes   map[int64]node // by worker
	version int32          // of the folder: each generator that makes a node raises it
	made    int64          // how many nodes were ever made in the folder: the sequence number of the next
	damaged string         // the path of a node that cannot be read; empty: none
}

// read reads all records. Of two nodes of one worker, which only a person can have made, the older
// counts.
func (r *Registry) read(ctx context.Context, c *client) (all records, err error) {
	if err := r.admit(c); err != nil {
		return all, err
	}
	if _, err := c.conn.Sync(r.forever); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return all, fmt.Errorf("reading %s: %w", r.forever, err)
	}
	names, folder, err := c.conn.Children(r.forever)
	if errors.Is(err, zk.ErrNoNode) {
		names, folder, err = nil, &zk.Stat{}, nil
	}
	if err != nil {
		return all, fmt.Errorf("reading %s: %w", r.forever, err)
	}
	all = records{nodes: make(map[int64]node), version: folder.Version,
		made: (int64(folder.Cversion) + int64(folder.NumChildren)) / 2} // it counts what was made and what was deleted
	for name, got := range r.readNodes(ctx, c, names) {
		switch {
		case errors.Is(got.err, zk.ErrNoNode): // deleted meanwhile
			continue
		case got.err != nil:
			return all, fmt.Errorf("reading %s/%s: %w", r.forever, name, got.err)
		}
		n, err := decode(name, got.text, got.stat)
		if err != nil {
			all.damaged = r.forever + "/" + name
		} else if other, ok := all.nodes[n.Worker]; !ok || n.created < other.created {
			all.nodes[n.Worker] = n
		}
	}
	r.known = all.nodes
	return all, ctx.Err() // a caller that has left must not begin a write
}

// nodeData is the answer to the question for one node.
type nodeData struct {
	text []byte
	stat *zk.Stat
	err  error
}

// readNodes reads nodes, many at a time.
func (r *Registry) readNodes(ctx context.Context, c *client, names []string) map[string]nodeData {
	nodes := make(map[string]nodeData, len(names))
	var mu sync.Mutex
	var reads sync.WaitGroup
	slots := make(chan struct{}, readsAtOnce)
	for _, name := range names {
		slots <- struct{}{}
		reads.Go(func() {
			defer func() { <-slots }()
			got := nodeData{err: ctx.Err()}
			if got.err == nil {
				got.text, got.stat, got.err = c.conn.Get(r.forever + "/" + name)
			}
			mu.Lock()
			defer mu.Unlock()
			nodes[name] = got
		})
	}
	reads.Wait()
	return nodes
}

// add makes the node of a worker that has none: its sequence number, counted from the first worker,
// or the next one that is free. So if all nodes are deleted, no worker comes back soon.
// [zk.ErrBadVersion]: another generator made a node meanwhile.
func (r *Registry) add(
	ctx context.Context, c *client, rec snowflake.Record, choice snowflake.Choice,
) (e snowflake.Entry, err error) {
	if err := r.admit(c); err != nil {
		return e, err
	}
	if err := r.make(c, r.forever); err != nil {
		return e, err
	}
	all, err := r.read(ctx, c)
	if err != nil {
		return e, err
	}
	if all.damaged != "" {
		return e, fmt.Errorf("the worker of the damaged node %s is unknown: stop its holder, then delete the node",
			all.damaged)
	}
	n, tried := choice.Last-choice.First+1, int64(0)
	for ; tried < n; tried++ {
		rec.Worker = choice.First + (all.made+tried)%n
		if all.nodes[rec.Worker].name == "" && choice.Allows(rec.Worker) {
			break
		}
	}
	if tried == n {
		return e, fmt.Errorf("%w: of %d to %d none is free", snowflake.ErrFull, choice.First, choice.Last)
	}
	done, err := r.write(c, &zk.SetDataRequest{Path: r.forever, Version: all.version}, &zk.CreateRequest{
		Path: r.forever + "/" + rec.Node + "-", Data: encode(rec, c.local(), r.cfg.Port), Acl: open, Flags: zk.FlagSequence,
	})
	if err != nil {
		return e, fmt.Errorf("making a node in %s (it may have happened): %w", r.forever, err)
	}
	r.lease(c, rec)
	made := done[0].Stat.Mzxid // both have one transaction
	e = snowflake.Entry{Record: rec, Version: uint64(made)}
	r.known[rec.Worker] = node{Entry: e, name: path.Base(done[1].String), created: made}
	return e, nil
}

func (r *Registry) put(ctx context.Context, c *client, rec snowflake.Record, version uint64) (uint64, error) {
	conflict := fmt.Errorf("%w: worker %d", snowflake.ErrConflict, rec.Worker)
	if err := r.admit(c); err != nil {
		return 0, err
	}
	known, ok := r.known[rec.Worker]
	if !ok || known.Version != version {
		all, err := r.read(ctx, c)
		if err != nil {
			return 0, err
		}
		known = all.nodes[rec.Worker]
	}
	if version == 0 || known.Version != version {
		return 0, conflict
	}
	where := r.forever + "/" + known.name
	text, stat, err := c.conn.Get(where)
	if errors.Is(err, zk.ErrNoNode) {
		return 0, conflict
	}
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", where, err)
	}
	now, err := decode(known.name, text, stat)
	if err != nil || now != known { // damaged, or changed by another generator
		return 0, conflict
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	set := &zk.SetDataRequest{Path: where, Data: encode(rec, c.local(), r.cfg.Port), Version: now.version}
	done, err := r.write(c, set)
	switch {
	case errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode):
		return 0, conflict
	case err != nil:
		return 0, fmt.Errorf("writing %s (it may have happened): %w", where, err)
	}
	r.lease(c, rec)
	now.Entry = snowflake.Entry{Record: rec, Version: uint64(done[0].Stat.Mzxid)}
	now.version = done[0].Stat.Version
	r.known[rec.Worker] = now
	return now.Version, nil
}
