package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"
)

// records are what ZooKeeper has.
type records struct {
	nodes map[int64]node // by worker
	// made is how many nodes were ever made in the folder: the sequence number
	// of the next.
	made    int64
	damaged []string // names of nodes that cannot be read
}

// read reads all records. Of two nodes of one worker the older counts: whoever
// made the other saw that, and uses it not.
func (r *Registry) read(ctx context.Context) (all records, err error) {
	if err := r.admit(); err != nil {
		return all, err
	}
	conn := r.link.conn
	if _, err := conn.Sync(r.forever); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return all, fmt.Errorf("reading %s: %w", r.forever, err)
	}
	names, folder, err := conn.Children(r.forever)
	if errors.Is(err, zk.ErrNoNode) {
		names, folder, err = nil, &zk.Stat{}, nil
	}
	if err != nil {
		return all, fmt.Errorf("reading %s: %w", r.forever, err)
	}
	all.made = (int64(folder.Cversion) + int64(folder.NumChildren)) / 2 // it counts what was made and what was deleted
	all.nodes = make(map[int64]node)
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, name := range names {
		if _, ok := number(name); !ok {
			mu.Lock()
			r.strange(name, 0, "it is no worker's record; nothing else may be made there, as each child takes a number")
			mu.Unlock()
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			text, stat, readErr := conn.Get(r.forever + "/" + name)
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(readErr, zk.ErrNoNode) {
				return // deleted meanwhile
			}
			if readErr != nil {
				err = fmt.Errorf("reading %s/%s: %w", r.forever, name, readErr)
				return
			}
			n, bad := decode(name, text, stat)
			if bad != nil {
				all.damaged = append(all.damaged, name)
				r.strange(name, stat.Mzxid, "it is damaged: no worker is added until it is deleted, when its holder is stopped: "+bad.Error())
				return
			}
			if other, ok := all.nodes[n.Worker]; !ok || n.created < other.created {
				all.nodes[n.Worker] = n
			}
		})
	}
	wg.Wait()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && conn.SessionID() != r.checked { // some of it may be another ZooKeeper's
		err = errors.New("the session with ZooKeeper ended meanwhile")
	}
	if err != nil {
		return all, err
	}
	r.known = all.nodes
	return all, nil
}

// strange logs something that should not be in the folder, once.
func (r *Registry) strange(name string, version int64, why string) {
	if had, ok := r.logged[name]; ok && had == version {
		return
	}
	r.logged[name] = version
	r.cfg.Log.Error("a node in ZooKeeper is not as it should be", "node", r.forever+"/"+name, "why", why)
}
