package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/zookeeper"
)

// solePatience is how long a NATS without JetStream may still be one whose
// JetStream is not there yet, when an installation begins.
const solePatience = 5 * time.Second

// sole is the installation's record where the NATS has no JetStream: ZooKeeper
// has it, and the data folder a copy, for a start without ZooKeeper.
type sole struct {
	zookeeper.Installation
	used    bool
	damaged bool      // the copy is there, and cannot be read
	since   time.Time // of when JetStream was first missed
}

const soleFile = "record"

func (s *sole) recall(dir *dataDir) error {
	text, err := dir.read(soleFile)
	if err != nil || text == "" {
		return err
	}
	if json.Unmarshal([]byte(text), &s.Installation) != nil || s.ID == "" || s.ZooKeeper == "" {
		s.Installation, s.damaged = zookeeper.Installation{}, true // ZooKeeper has it too
	}
	return nil
}

// carry makes the record of an installation that was without JetStream so far
// the one that JetStream gets: it has neither its tags nor its workers there.
func (m *member) carry(ctx context.Context, first *kvstore.Installation) error {
	if m.db == nil || m.zk == nil {
		return nil
	}
	there, err := m.zk.Owner(ctx)
	if errors.Is(err, zookeeper.ErrNobodys) || err == nil && !there.Sole {
		return nil
	}
	if err != nil {
		return fmt.Errorf("whether the installation's record is in ZooKeeper: %w", err)
	}
	// The same claims, with the same words, as without JetStream: so the database is
	// noted in ZooKeeper too, for those who still are.
	if err := m.claimSole(ctx, there); err != nil {
		return err
	}
	there = m.sole.Installation
	first.ID, first.Created, first.Database = there.ID, there.Created, there.Database
	first.ZooKeepers = []kvstore.ZooKeeper{{
		ID: there.ZooKeeper, Name: m.zk.Name(), Installation: there.ID, Last: there.Workers() - 1,
	}}
	return nil
}

// claimSole claims ZooKeeper and the database for the installation there, whose
// record is in ZooKeeper, or for a new one.
func (m *member) claimSole(ctx context.Context, there zookeeper.Installation) error {
	want := there
	want.Sole, want.Layout = true, m.want.Layout
	have, err := m.zk.Claim(ctx, want, there.ZooKeeper)
	if errors.Is(err, snowflake.ErrRefused) {
		return fmt.Errorf("%w: %w", allocator.ErrRefused, err)
	}
	if err != nil {
		return err
	}
	o, err := m.db.Claim(ctx, have.ID, have.Database)
	if err == nil && have.Database == "" && o.Installation == have.ID {
		if have.Database, err = m.zk.PinDatabase(ctx, o.Store); err == nil {
			o, err = m.db.Claim(ctx, have.ID, have.Database) // another generator may have been first, with another database
		}
	}
	if err != nil {
		return err
	}
	if m.owner = o.Installation; m.owner != have.ID {
		return fmt.Errorf("%w: %w", allocator.ErrRefused, m.disagree(have.ID))
	}
	m.sole.Installation = have
	return nil
}

// joinSole enters an installation without JetStream, of which ZooKeeper has the
// record. Neither ZooKeeper nor the database holds up a start that knows both: what
// they hold is claimed before it is served.
func (m *member) joinSole(ctx context.Context) (identity generator.Identity, err error) {
	if m.sole.since.IsZero() {
		m.sole.since = time.Now()
	}
	known := m.sole.ZooKeeper != ""
	switch {
	case m.installation != "" && !known && !m.sole.damaged:
		return identity, fmt.Errorf("installation %s keeps its record in JetStream, which does not answer", m.installation)
	case m.installation == "" && time.Since(m.sole.since) < solePatience:
		return identity, errors.New("JetStream does not answer; if it does not come, ZooKeeper gets the installation's record")
	}
	there, err := m.soleOwner(ctx)
	if err != nil {
		return identity, err
	}
	if d := there.Differences(m.want.Layout); there.ID != "" && len(d) > 0 {
		return identity, fmt.Errorf("%w: the configuration is not that of installation %s: %s", allocator.ErrRefused, there.ID, strings.Join(d, "; "))
	}
	if known && m.trusted {
		m.owner = there.ID
	} else if err := m.claimSole(ctx, there); err != nil {
		return identity, err
	}
	have := m.sole.Installation
	m.sole.used, m.database = true, have.Database
	m.have = kvstore.Installation{ID: have.ID, Layout: have.Layout, Created: have.Created}
	text, err := json.Marshal(have)
	if err == nil {
		err = errors.Join(m.dir.write(soleFile, string(text)), m.belong())
	}
	if err != nil {
		return identity, err
	}
	m.log.Warn("this NATS has no JetStream: events reach those who listen, and nothing keeps them")
	return generator.Identity{Installation: have.ID, Created: have.Created, NoEvents: true}, nil
}

// soleOwner returns the installation whose record is in ZooKeeper, or what the
// data folder knows of it while ZooKeeper is away; the zero value is a new one.
func (m *member) soleOwner(ctx context.Context) (there zookeeper.Installation, err error) {
	known := m.sole.ZooKeeper != ""
	there, err = m.zk.Owner(ctx)
	switch {
	case errors.Is(err, zookeeper.ErrNobodys) && known:
		_, err = m.zk.Claim(ctx, m.sole.Installation, m.sole.ZooKeeper) // which refuses, and says what to do
		return there, fmt.Errorf("%w: %w", allocator.ErrRefused, err)
	case errors.Is(err, zookeeper.ErrNobodys) && m.installation != "":
		return there, fmt.Errorf("%w: this data folder belongs to installation %s, and ZooKeeper (%s) is nobody's: name the right one", allocator.ErrRefused, m.installation, m.zk.Name())
	case errors.Is(err, zookeeper.ErrNobodys):
		// Whose the database is must be known before ZooKeeper is claimed, for that stays.
		owner, err := m.db.Owner(ctx)
		if err == nil && owner.Installation != "" {
			err = fmt.Errorf("the database belongs to installation %s, and ZooKeeper (%s) to nobody: "+
				"waiting for that installation's JetStream; or is --zookeeper or --zookeeper-name wrong?", owner.Installation, m.zk.Name())
		}
		return zookeeper.Installation{}, err
	case errors.Is(err, snowflake.ErrRefused):
		return there, fmt.Errorf("%w: %w", allocator.ErrRefused, err)
	case err != nil && known:
		return m.sole.Installation, nil // what ZooKeeper says does not change
	case err != nil:
		return there, err
	case !there.Sole:
		return there, fmt.Errorf("installation %s keeps its record in JetStream, and this NATS has none: name the right --server, or enable it", there.ID)
	case m.installation != "" && there.ID != m.installation || known && there.ZooKeeper != m.sole.ZooKeeper:
		return there, fmt.Errorf("%w: this data folder belongs to installation %s, but this ZooKeeper (%s) to installation %s, or it is another one of the same; "+
			"name the right --zookeeper and --zookeeper-name, or another --data-dir", allocator.ErrRefused, m.installation, m.zk.Name(), there.ID)
	}
	return there, nil
}
