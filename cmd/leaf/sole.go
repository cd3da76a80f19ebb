package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/zookeeper"
)

// solePatience is how long a NATS without JetStream may still be one whose
// JetStream is not there yet.
const solePatience = 3 * time.Second

// sole is the installation's record where the NATS has no JetStream: ZooKeeper
// has it, and the data folder a copy, for a start without ZooKeeper.
type sole struct {
	zookeeper.Installation
	used  bool
	since time.Time // of when JetStream was first missed
}

const soleFile = "record"

func (s *sole) recall(dir *dataDir) error {
	text, err := dir.read(soleFile)
	if err != nil || text == "" {
		return err
	}
	if err := json.Unmarshal([]byte(text), &s.Installation); err != nil {
		return fmt.Errorf("%s is damaged: %w; remove it", dir.file(soleFile), err)
	}
	return nil
}

// joinSole enters an installation without JetStream, of which ZooKeeper has the
// record. That and the database must agree whose they are.
func (m *member) joinSole(ctx context.Context) (identity bus.Identity, err error) {
	if m.sole.since.IsZero() {
		m.sole.since = time.Now()
	}
	known := m.sole.ZooKeeper != ""
	switch {
	case m.installation != "" && !known:
		return identity, fmt.Errorf("installation %s keeps its record in JetStream, which does not answer", m.installation)
	case time.Since(m.sole.since) < solePatience:
		return identity, errors.New("JetStream does not answer; if it does not come, ZooKeeper gets the installation's record")
	}
	want := zookeeper.Installation{Sole: true, Layout: m.want.Layout}
	have, err := m.zk.Claim(ctx, want, m.sole.ZooKeeper)
	switch {
	case errors.Is(err, snowflake.ErrRefused):
		return identity, fmt.Errorf("%w: %w", allocator.ErrRefused, err)
	case err != nil && !known:
		return identity, err
	case err != nil:
		have = m.sole.Installation // ZooKeeper is away; what it says does not change
	case !have.Sole:
		return identity, fmt.Errorf("installation %s keeps its record in JetStream, and this NATS has none: name the right --server, or enable it", have.ID)
	case m.installation != "" && have.ID != m.installation:
		return identity, fmt.Errorf("%w: this data folder belongs to installation %s, but this ZooKeeper to installation %s; "+
			"name the right --zookeeper, or another --data-dir", allocator.ErrRefused, m.installation, have.ID)
	}
	m.sole.Installation, m.sole.used = have, true
	m.have = kvstore.Installation{ID: have.ID, Database: have.Database, Layout: have.Layout, Created: have.Created}
	if !known { // else a database that is away holds up only the segments
		owner, err := m.claimDatabase(ctx)
		if err == nil {
			err = m.agree(owner)
		}
		if err != nil {
			return identity, err
		}
	}
	m.sole.Database = m.have.Database
	text, err := json.Marshal(m.sole.Installation)
	if err == nil {
		err = errors.Join(m.dir.write(soleFile, string(text)), m.belong())
	}
	if err != nil {
		return identity, err
	}
	m.log.Warn("this NATS has no JetStream: events reach those who listen, and nothing keeps them")
	return bus.Identity{Installation: have.ID, Created: have.Created, NoEvents: true}, nil
}

// agree makes sure that the database's owner is ZooKeeper's, if there is nothing
// else to tell the one from the other.
func (m *member) agree(owner string) error {
	if !m.sole.used || owner == m.have.ID {
		return nil
	}
	return fmt.Errorf("%w: the database belongs to installation %s, and ZooKeeper (%s) to installation %s: "+
		"without JetStream they must be one installation's. Name the right ones with --mysql, --zookeeper and --zookeeper-name; or, if installation %[2]s is gone for good, "+
		"UPDATE leaf_installation SET id = '%[4]s' and start again", allocator.ErrRefused, owner, m.zk.Name(), m.have.ID)
}
