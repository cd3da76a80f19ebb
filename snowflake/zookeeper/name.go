package zookeeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/snowflake"
)

// nameNode is a temporary node of this generator's name.
type nameNode struct {
	session     int64
	incarnation string
}

// namesake is another generator that has the temporary node of this one's name, as
// it was last seen.
type namesake struct {
	incarnation string
	version     uint64 // of its record
}

// running is what a temporary node says of its generator.
type running struct {
	Node        string    `json:"node"`
	Incarnation string    `json:"incarnation"`
	IP          string    `json:"ip"`
	Port        string    `json:"port"`
	Host        string    `json:"host"`
	PID         int       `json:"pid"`
	Since       time.Time `json:"since"`
}

func (p running) String() string {
	return fmt.Sprintf("process %d on %s (%s), since %s", p.PID, p.Host, p.IP, p.Since.Format(time.RFC3339))
}

// claimName returns what makes the temporary node of the record's holder, to be done
// together with a write of the record, and the value of r.own after that; no
// operations if the node is there. before is the incarnation that this one takes over
// from: a node that it left is replaced at once. A node of another generator with this
// name is an error. The error matches [snowflake.ErrRefused] if that generator is known
// to run, because its record changes.
func (r *Registry) claimName(rec snowflake.Record, before string) (ops []any, made nameNode, err error) {
	session := r.link.conn.SessionID()
	made = nameNode{session, rec.Incarnation}
	if rec.Node != r.cfg.Node || r.own == made {
		return nil, r.own, nil
	}
	where := r.temporary + "/" + r.cfg.Node
	own := running{
		Node: r.cfg.Node, Incarnation: rec.Incarnation, IP: r.link.local(), Port: r.cfg.Port,
		PID: os.Getpid(), Since: time.Now().UTC().Truncate(time.Second),
	}
	own.Host, _ = os.Hostname() // for people; "" where it has none
	text, err := json.Marshal(own)
	if err != nil {
		return nil, nameNode{}, err
	}
	if err := r.makeHere(r.temporary); err != nil {
		return nil, nameNode{}, err
	}
	ops = []any{&zk.CreateRequest{Path: where, Data: text, Acl: open, Flags: zk.FlagEphemeral}}
	text, stat, err := r.link.conn.Get(where)
	if errors.Is(err, zk.ErrNoNode) {
		return ops, made, nil
	}
	if err != nil {
		return nil, nameNode{}, fmt.Errorf("reading %s: %w", where, err)
	}
	var other running
	_ = json.Unmarshal(text, &other) // a node made by hand is another generator's too
	if stat.EphemeralOwner == session || other.Incarnation == rec.Incarnation || other.Incarnation == before &&
		before != "" {
		return append([]any{&zk.DeleteRequest{Path: where, Version: stat.Version}}, ops...), made, nil
	}
	return nil, nameNode{}, r.nameTaken(other)
}

// nameTaken is the error of a name that another generator has.
func (r *Registry) nameTaken(other running) error {
	seen := r.other
	r.other = namesake{incarnation: other.Incarnation}
	for _, n := range r.known {
		if n.Incarnation == other.Incarnation {
			r.other.version = n.Version
		}
	}
	if seen.incarnation == other.Incarnation && seen.version != 0 && seen.version != r.other.version {
		return fmt.Errorf("%w: another generator runs under the name %s: %v. Stop that one, or give this one another name "+
			"(--node)",
			snowflake.ErrRefused, r.cfg.Node, other)
	}
	return fmt.Errorf("the name %s is in use by %v; if that process has ended, its session in ZooKeeper will end too",
		r.cfg.Node, other)
}
