package zookeeper

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/snowflake"
)

// data is what the node of a worker's record says. The first three are Leaf's.
// Times are Unix ms.
type data struct {
	IP        string `json:"ip"`
	Port      string `json:"port"`
	Timestamp int64  `json:"timestamp"` // the holder's last word

	Node          string `json:"node"`
	Incarnation   string `json:"incarnation"`
	ReservedUntil int64  `json:"reserved_until"`
	Acquired      int64  `json:"acquired"`
	Base          *int64 `json:"base"` // base + sequence number = worker
}

// sequential is the form of a node's name: that of a generator, and the sequence
// number. One hyphen stands between them: after a second one the number would be negative.
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
	snowflake.Entry // whose version is the ID of the last transaction, which never comes again
	name            string
	base            int64
	version         int32 // what ZooKeeper calls so: it counts anew when a node does
	created         int64 // the ID of the transaction
}

// decode reads a node. One that cannot be what this package wrote is an error:
// to guess could give a worker to two.
func decode(name string, text []byte, s *zk.Stat) (node, error) {
	n, ok := number(name)
	var d data
	if err := json.Unmarshal(text, &d); !ok || err != nil || d.Base == nil || d.Incarnation == "" || d.ReservedUntil <= 0 || s.Mzxid <= 0 {
		return node{}, fmt.Errorf("node %s: %.200q", name, text)
	}
	worker := *d.Base + n
	if *d.Base < -n || worker < 0 { // with the first alone it could overflow
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
