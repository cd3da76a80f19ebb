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

// lease is the temporary node that was made last.
type lease struct {
	session     int64
	incarnation string
}

// rival is another generator's temporary node under this one's name, as it was
// seen last.
type rival struct {
	incarnation string
	version     uint64 // of its record
}

// running is what a temporary node says of the generator that runs.
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

// hold returns what makes the temporary node of the record's holder, to be done
// together with a write of the record, and what r.lease is to be then; nothing if
// it is there. before is the
// incarnation that this one takes over from: what that has left is removed at
// once. A node of this name that is another's is an error, which matches
// [snowflake.ErrRefused] when that is known to be alive: its record moves on.
func (r *Registry) hold(rec snowflake.Record, before string) (ops []any, made lease, err error) {
	session := r.link.conn.SessionID()
	made = lease{session, rec.Incarnation}
	if rec.Node != r.cfg.Node || r.lease == made {
		return nil, r.lease, nil
	}
	where := r.temporary + "/" + r.cfg.Node
	own := running{
		Node: r.cfg.Node, Incarnation: rec.Incarnation, IP: r.link.local(), Port: r.cfg.Port,
		PID: os.Getpid(), Since: time.Now().UTC().Truncate(time.Second),
	}
	own.Host, _ = os.Hostname() // for people; "" where it has none
	text, err := json.Marshal(own)
	if err != nil {
		return nil, lease{}, err
	}
	if err := r.makeHere(r.temporary); err != nil {
		return nil, lease{}, err
	}
	ops = []any{&zk.CreateRequest{Path: where, Data: text, Acl: open, Flags: zk.FlagEphemeral}}
	text, stat, err := r.link.conn.Get(where)
	if errors.Is(err, zk.ErrNoNode) {
		return ops, made, nil
	}
	if err != nil {
		return nil, lease{}, fmt.Errorf("reading %s: %w", where, err)
	}
	var other running
	_ = json.Unmarshal(text, &other) // made by hand; it is an other's then too
	if stat.EphemeralOwner == session || other.Incarnation == rec.Incarnation || other.Incarnation == before && before != "" {
		return append([]any{&zk.DeleteRequest{Path: where, Version: stat.Version}}, ops...), made, nil
	}
	seen := r.rival
	r.rival = rival{incarnation: other.Incarnation}
	for _, n := range r.known {
		if n.Incarnation == other.Incarnation {
			r.rival.version = n.Version
		}
	}
	if seen.incarnation == other.Incarnation && seen.version != 0 && seen.version != r.rival.version {
		return nil, lease{}, fmt.Errorf("%w: another generator runs under the name %s: %v. Stop that one, or give this one another name (--node)",
			snowflake.ErrRefused, r.cfg.Node, other)
	}
	return nil, lease{}, fmt.Errorf("the name %s is in use by %v; if that has ended, its session in ZooKeeper will too", r.cfg.Node, other)
}
