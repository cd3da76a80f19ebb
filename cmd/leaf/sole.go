package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
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
	if d := there.Differences(first.Layout); len(d) > 0 {
		return fmt.Errorf("%w: the configuration is not that of installation %s: %s", allocator.ErrRefused, there.ID, strings.Join(d, "; "))
	}
	first.ID, first.Created, first.Database = there.ID, there.Created, there.Database
	first.ZooKeepers = []kvstore.ZooKeeper{{
		ID: there.ZooKeeper, Name: m.zk.Name(), Installation: there.ID, Last: there.Workers() - 1,
	}}
	return nil
}

// joinSole enters an installation without JetStream, of which ZooKeeper has the
// record. A database that is away holds up only the segments of one that is known.
func (m *member) joinSole(ctx context.Context) (identity bus.Identity, err error) {
	if m.sole.since.IsZero() {
		m.sole.since = time.Now()
	}
	known := m.sole.ZooKeeper != ""
	switch {
	case m.installation != "" && !known:
		return identity, fmt.Errorf("installation %s keeps its record in JetStream, which does not answer", m.installation)
	case !known && time.Since(m.sole.since) < solePatience:
		return identity, errors.New("JetStream does not answer; if it does not come, ZooKeeper gets the installation's record")
	}
	have, err := m.zk.Claim(ctx, zookeeper.Installation{Sole: true, Layout: m.want.Layout}, m.sole.ZooKeeper)
	switch {
	case errors.Is(err, snowflake.ErrRefused):
		return identity, fmt.Errorf("%w: %w", allocator.ErrRefused, err)
	case err != nil && !known:
		return identity, err
	case err != nil:
		have = m.sole.Installation // ZooKeeper is away; what it says does not change
		if d := have.Differences(m.want.Layout); len(d) > 0 {
			return identity, fmt.Errorf("%w: the configuration is not that of installation %s: %s", allocator.ErrRefused, have.ID, strings.Join(d, "; "))
		}
	case !have.Sole:
		return identity, fmt.Errorf("installation %s keeps its record in JetStream, and this NATS has none: name the right --server, or enable it", have.ID)
	case m.installation != "" && have.ID != m.installation:
		return identity, fmt.Errorf("%w: this data folder belongs to installation %s, but this ZooKeeper to installation %s; "+
			"name the right --zookeeper, or another --data-dir", allocator.ErrRefused, m.installation, have.ID)
	}
	m.sole.Installation, m.sole.used = have, true
	m.have = kvstore.Installation{ID: have.ID, Layout: have.Layout, Created: have.Created}
	m.owner, m.database = have.ID, have.Database
	if !known || !m.trusted {
		if m.owner, err = m.claimDatabase(ctx); err != nil {
			return identity, err
		}
		if m.owner != have.ID {
			return identity, fmt.Errorf("%w: %w", allocator.ErrRefused, m.disagree(have.ID))
		}
	}
	m.sole.Database = m.database
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
