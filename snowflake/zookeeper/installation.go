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

// owner is the record that says which installation the workers here belong to.
type owner struct {
	ID        string `json:"id"`        // of the installation; random
	ZooKeeper string `json:"zookeeper"` // of this place in ZooKeeper; random
	snowflake.Layout
	Created time.Time `json:"created"` // of this record
}

// errNoOwner: no installation has its workers in this ZooKeeper, under this name.
var errNoOwner = errors.New("no installation has its workers in this ZooKeeper")

// Claim returns the installation that the workers belong to, and the ID of this place in ZooKeeper.
// Both are empty if they belong to none. With first, workers of none then belong to this
// installation. If the workers belong to this installation, nothing is read or written elsewhere
// from then on, wherever the addresses lead. Then another layout is refused, with an error that
// matches [snowflake.ErrRefused]. All other methods need a Claim before.
func (r *Registry) Claim(ctx context.Context, installation string, first bool) (of, id string, err error) {
	have, err := ask(ctx, r.link, func(ctx context.Context, c *client) (owner, error) {
		for {
			have, err := r.readInstallation(c)
			switch {
			case errors.Is(err, errNoOwner) && !first:
				return owner{}, nil
			case errors.Is(err, errNoOwner):
				if err := r.makeInstallation(c, installation); err != nil && !errors.Is(err, zk.ErrNodeExists) {
					return have, fmt.Errorf("making %s: %w", r.installation, err)
				}
				if ctx.Err() != nil {
					return have, ctx.Err()
				}
				continue // several may have tried: the record that is there counts
			case err != nil || have.ID != installation:
				return have, err
			}
			if d := have.Differences(r.cfg.Layout); len(d) > 0 {
				return have, fmt.Errorf("%w: the configuration is not that of %s in ZooKeeper: %s", snowflake.ErrRefused, r.root,
					strings.Join(d, "; "))
			}
			r.id, c.admitted = have.ZooKeeper, true
			return have, nil
		}
	})
	if errors.Is(err, zk.ErrNoAuth) {
		err = fmt.Errorf("%w: %w: let this machine read, create, write and delete nodes in %s (in zkCli.sh: setAcl -R %[3]s "+
			"world:anyone:cdrwa), "+
			"and create that node if it is missing", err, snowflake.ErrMisconfigured, rootFolder)
	}
	if err != nil {
		return "", "", err
	}
	return have.ID, have.ZooKeeper, nil
}

// Repair returns what a person types in zkCli.sh to make this place, with this ID, the
// installation's; without an installation, what makes it belong to none.
func (r *Registry) Repair(installation, id string) string {
	if installation == "" {
		return "deleteall " + r.installation
	}
	// never fails
	record, _ := json.Marshal(owner{installation, id, r.cfg.Layout, time.Now().UTC().Truncate(time.Millisecond)})
	return fmt.Sprintf("create /leaf ''\ncreate %[1]s ''\ncreate %[2]s '%[3]s'\ncreate %[2]s/%[4]s ''", r.root,
		r.installation, record, id)
}

// readInstallation reads the record.
func (r *Registry) readInstallation(c *client) (have owner, err error) {
	// A server that lags behind may not know yet what was made a moment ago.
	if _, err := c.conn.Sync(rootFolder); err != nil {
		return have, fmt.Errorf("reading %s: %w", r.installation, err)
	}
	text, _, err := c.conn.Get(r.installation)
	if errors.Is(err, zk.ErrNoNode) {
		return have, errNoOwner
	}
	if err != nil {
		return have, fmt.Errorf("reading %s: %w", r.installation, err)
	}
	if err := json.Unmarshal(text, &have); err != nil || have.ID == "" || have.ZooKeeper == "" ||
		strings.Contains(have.ZooKeeper, "/") {
		return have, fmt.Errorf("%w: %s in ZooKeeper is damaged: %.200q; restore it from a backup", snowflake.ErrRefused,
			r.installation, text)
	}
	where := r.installation + "/" + have.ZooKeeper
	there, _, err := c.conn.Exists(where)
	if err != nil {
		return have, fmt.Errorf("reading %s: %w", where, err)
	}
	if !there { // not for us to make: nothing would prove where it is made
		return have, fmt.Errorf("%w: the node %s is gone from ZooKeeper: was it deleted by hand? In zkCli.sh: create "+
			"%[2]s ''", snowflake.ErrRefused, where)
	}
	return have, nil
}

// makeInstallation writes the record, if there is none.
func (r *Registry) makeInstallation(c *client, id string) error {
	for _, folder := range []string{rootFolder, r.root} {
		if err := r.make(c, folder); err != nil {
			return err
		}
	}
	want := owner{id, rand.Text(), r.cfg.Layout, time.Now().UTC().Truncate(time.Millisecond)}
	record, err := json.Marshal(want)
	if err != nil {
		return err
	}
	_, err = c.conn.Multi(
		&zk.CreateRequest{Path: r.installation, Data: record, Acl: open},
		&zk.CreateRequest{Path: r.installation + "/" + want.ZooKeeper, Acl: open},
	)
	return err
}

// make makes a node without data, if it is not there.
func (r *Registry) make(c *client, path string) error {
	there, _, err := c.conn.Exists(path)
	if err == nil && !there {
		_, err = c.conn.Create(path, nil, 0, open)
	}
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("making %s in ZooKeeper: %w", path, err)
	}
	return nil
}
