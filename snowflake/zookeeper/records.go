package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/snowflake"
)

// data is what the node of a worker's record says. The first three are Leaf's.
// Times are Unix ms.
type data struct {
	IP        string `json:"ip"`
	Port      string `json:"port"`
	Timestamp int64  `json:"timestamp"` // the holder's last report

	Node          string `json:"node"`
	Incarnation   string `json:"incarnation"`
	ReservedUntil int64  `json:"reserved_until"`
	Acquired      int64  `json:"acquired"`
	Base          *int64 `json:"base"` // base + sequence number = worker
}

// sequential is the form of a node's name: that of a generator, one hyphen, and the
// sequence number. After a second hyphen the number would be negative.
var sequential = regexp.MustCompile(`[^-]-([0-9]{10})$`)

// prefix is how the name of a generator's record begins.
func prefix(generator string) string {
	if strings.HasSuffix(generator, "-") {
		generator += "_"
	}
	return generator + "-"
}

// number returns the sequence number of a node's name.
func number(name string) (n int64, ok bool) {
	m := sequential.FindStringSubmatch(name)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	return n, err == nil
}

// node is a worker's record and where it is.
type node struct {
	snowflake.Entry // its version is the ID of the last transaction, which never comes again
	name            string
	base            int64
	version         int32 // ZooKeeper's: it begins at 0 when a node is made again
	created         int64 // the ID of the transaction
}

// decode reads a node. A node that this package cannot have written is an error: a
// guess could give a worker to two generators.
func decode(name string, text []byte, s *zk.Stat) (node, error) {
	n, ok := number(name)
	var d data
	if err := json.Unmarshal(text, &d); !ok || err != nil || d.Base == nil || d.Incarnation == "" ||
		d.ReservedUntil <= 0 || s.Mzxid <= 0 {
		return node{}, fmt.Errorf("node %s: %.200q", name, text)
	}
	worker := *d.Base + n
	if *d.Base < -n || worker < 0 { // the sum may have overflowed
		return node{}, fmt.Errorf("node %s makes no worker: %.200q", name, text)
	}
	return node{
		Entry: snowflake.Entry{
			Record: snowflake.Record{
				Worker: worker, Node: d.Node, Incarnation: d.Incarnation,
				ReservedUntil: d.ReservedUntil, Acquired: d.Acquired, Reported: d.Timestamp,
			},
			Version: uint64(s.Mzxid),
		},
		name: name, base: *d.Base, version: s.Version, created: s.Czxid,
	}, nil
}

// encode is the data of a record whose node has this base.
func (r *Registry) encode(rec snowflake.Record, base int64) ([]byte, error) {
	return json.Marshal(data{
		IP: r.link.local(), Port: r.cfg.Port, Timestamp: rec.Reported,
		Node: rec.Node, Incarnation: rec.Incarnation, ReservedUntil: rec.ReservedUntil, Acquired: rec.Acquired, Base: &base,
	})
}

// records are what ZooKeeper has.
type records struct {
	nodes map[int64]node // by worker
	// rivals are the holders by second nodes of a worker. A node that was made at the same moment as another, and was
	// never used, is not one of them when its reservation is over: its generator may have been killed before it could
	// delete it.
	rivals map[int64]string
	// made is how many nodes were ever made in the folder: the sequence number
	// of the next.
	made    int64
	damaged []string // names of nodes that cannot be read
}

// read reads all records. Of two nodes of one worker the older counts: the generator
// that made the other notices that, and does not use it.
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
	all.nodes, all.rivals = make(map[int64]node), make(map[int64]string)
	for name, got := range r.readNodes(ctx, names) {
		switch {
		case errors.Is(got.err, zk.ErrNoNode): // deleted meanwhile
			continue
		case got.err != nil:
			return all, fmt.Errorf("reading %s/%s: %w", r.forever, name, got.err)
		}
		n, err := decode(name, got.text, got.stat)
		if err != nil {
			all.damaged = append(all.damaged, name)
			r.logOnce(name, got.stat.Mzxid,
				"it is damaged: no worker is added until it is deleted, when its holder is stopped: "+err.Error())
			continue
		}
		other, ok := all.nodes[n.Worker]
		if !ok || n.created < other.created {
			n, other = other, n
			all.nodes[other.Worker] = other
		}
		if ok && (n.version > 0 || n.ReservedUntil > time.Now().UnixMilli()) {
			all.rivals[n.Worker] = n.Node
		}
	}
	if err := ctx.Err(); err != nil { // the caller has left, and must not begin a write
		return all, err
	}
	if conn.SessionID() != r.checked { // a part may be from another ZooKeeper
		return all, errors.New("the session with ZooKeeper ended meanwhile")
	}
	r.known = all.nodes
	return all, nil
}

// nodeData is the answer to the question for one node.
type nodeData struct {
	text []byte
	stat *zk.Stat
	err  error
}

// readNodes reads those of the nodes that are workers' records, many at a time.
func (r *Registry) readNodes(ctx context.Context, names []string) map[string]nodeData {
	nodes := make(map[string]nodeData, len(names))
	var mu sync.Mutex
	var reads sync.WaitGroup
	slots := make(chan struct{}, readsAtOnce)
	for _, name := range names {
		if _, ok := number(name); !ok {
			r.logOnce(name, 0, "it is no worker's record; nothing else may be made there, because each child takes a number")
			continue
		}
		slots <- struct{}{}
		reads.Go(func() {
			defer func() { <-slots }()
			got := nodeData{err: ctx.Err()}
			if got.err == nil {
				got.text, got.stat, got.err = r.link.conn.Get(r.forever + "/" + name)
			}
			mu.Lock()
			defer mu.Unlock()
			nodes[name] = got
		})
	}
	reads.Wait()
	return nodes
}

// logOnce logs a node that should not be in the folder, once for each of its versions.
func (r *Registry) logOnce(name string, version int64, why string) {
	if had, ok := r.logged[name]; ok && had == version {
		return
	}
	r.logged[name] = version
	r.cfg.Log.Error("a node in ZooKeeper is not valid", "node", r.forever+"/"+name, "why", why)
}
