package zookeeper

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/snowflake"
)

// Installation says whose the records are.
type Installation struct {
	ID        string `json:"id"`        // of the installation; random
	ZooKeeper string `json:"zookeeper"` // of this place in ZooKeeper; random
	snowflake.Layout
	Created time.Time `json:"created"`
}

// ErrNobodys says that no installation has its workers in this ZooKeeper, under
// this name.
var ErrNobodys = errors.New("no installation has its workers in this ZooKeeper")

// Owner returns whose the records are, and changes nothing; [ErrNobodys] if they
// are nobody's.
func (r *Registry) Owner(ctx context.Context) (Installation, error) {
	return ask(ctx, r.link, func(context.Context) (Installation, error) {
		have, _, err := r.readInstallation()
		return have, err
	})
}

// Claim returns whose the records are. If they are nobody's they are from now on
// those of the installation in want. known is the
// ID of the ZooKeeper that the installation is known to use, or empty: one that
// has another, or none, is refused, and so is one with another layout, with an
// error that matches [snowflake.ErrRefused]. From then on nothing is read or
// written elsewhere, wherever the addresses lead. It comes before everything else.
func (r *Registry) Claim(ctx context.Context, want Installation, known string) (Installation, error) {
	return ask(ctx, r.link, func(ctx context.Context) (Installation, error) {
		for {
			have, session, err := r.readInstallation()
			switch {
			case errors.Is(err, ErrNobodys) && known == "":
				if err := r.makeInstallation(want); err != nil && !errors.Is(err, zk.ErrNodeExists) {
					return have, fmt.Errorf("making %s: %w", r.installation, err)
				}
				if ctx.Err() != nil {
					return have, ctx.Err()
				}
				continue // whoever was first, the record that counts is the one that is there
			case errors.Is(err, ErrNobodys):
				return have, r.nobodys(want, known)
			case err != nil:
				return have, err
			case known != "" && known != have.ZooKeeper:
				return have, fmt.Errorf("%w: installation %s keeps its workers in another ZooKeeper, or under another name (%s, %s is %s): "+
					"two generators would get the same worker. Name that one with --zookeeper and --zookeeper-name, on every generator",
					snowflake.ErrRefused, want.ID, known, r.root, have.ZooKeeper)
			}
			if d := have.Differences(want.Layout); len(d) > 0 {
				return have, fmt.Errorf("%w: the configuration is not that of %s in ZooKeeper: %s", snowflake.ErrRefused, r.root, strings.Join(d, "; "))
			}
			r.id, r.checked = have.ZooKeeper, session
			return have, nil
		}
	})
}

// nobodys is the error about a ZooKeeper that should have the installation's
// record and has none.
func (r *Registry) nobodys(want Installation, known string) error {
	want.ZooKeeper = known
	record, _ := json.Marshal(want) // never fails: it has strings, numbers and a time in our days
	return fmt.Errorf("%w: installation %s keeps its workers in ZooKeeper %s, and %s is nobody's: it lost its state, or it is another one. "+
		"Name the right one with --zookeeper and --zookeeper-name, or restore it; if it is the right one, and what its workers had reserved "+
		"is over (--worker-reserve), in zkCli.sh:\ncreate /leaf ''\ncreate %[4]s ''\ncreate %[5]s '%[6]s'\ncreate %[5]s/%[3]s ''",
		snowflake.ErrRefused, want.ID, known, r.root, r.installation, record)
}

// readInstallation reads the record, and the session in which it did.
func (r *Registry) readInstallation() (have Installation, session int64, err error) {
	conn := r.link.conn
	session = conn.SessionID()
	// A server that lags behind may not know yet what was made a moment ago.
	if _, err := conn.Sync(rootFolder); err != nil {
		return have, 0, fmt.Errorf("reading %s: %w", r.installation, err)
	}
	text, _, err := conn.Get(r.installation)
	if errors.Is(err, zk.ErrNoNode) {
		return have, 0, ErrNobodys
	}
	if err != nil {
		return have, 0, fmt.Errorf("reading %s: %w", r.installation, err)
	}
	if err := json.Unmarshal(text, &have); err != nil || have.ID == "" || have.ZooKeeper == "" || strings.Contains(have.ZooKeeper, "/") {
		return have, 0, fmt.Errorf("%w: %s in ZooKeeper is damaged: %.200q; restore it from a backup", snowflake.ErrRefused, r.installation, text)
	}
	where := r.installation + "/" + have.ZooKeeper
	there, _, err := conn.Exists(where)
	if err == nil && conn.SessionID() != session {
		err = errors.New("the session with ZooKeeper ended meanwhile")
	}
	if err != nil {
		return have, 0, fmt.Errorf("reading %s: %w", where, err)
	}
	if !there { // not for us to make: nothing would prove where it is made
		return have, 0, fmt.Errorf("%w: the node %s is gone from ZooKeeper: was it deleted by hand? In zkCli.sh: create %[2]s ''", snowflake.ErrRefused, where)
	}
	return have, session, nil
}

// makeInstallation writes the record, if there is none.
func (r *Registry) makeInstallation(want Installation) error {
	for _, folder := range []string{rootFolder, r.root} {
		if err := r.make(folder); err != nil {
			return err
		}
	}
	want.ZooKeeper = rand.Text()
	record, err := json.Marshal(want)
	if err != nil {
		return err
	}
	_, err = r.link.conn.Multi(
		&zk.CreateRequest{Path: r.installation, Data: record, Acl: open},
		&zk.CreateRequest{Path: r.installation + "/" + want.ZooKeeper, Acl: open},
	)
	return err
}

// make makes a node without data, if it is not there.
func (r *Registry) make(path string) error {
	there, _, err := r.link.conn.Exists(path)
	if err == nil && !there {
		_, err = r.link.conn.Create(path, nil, 0, open)
	}
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("making %s in ZooKeeper: %w", path, err)
	}
	return nil
}
