package main

import (
	"context"
	"sync"

	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/schema"
)

// openFolder opens the data folder. Before it checks the DSN: a usage error leaves no folder.
func (s *serving) openFolder(context.Context) error {
	db, err := s.mysql.store(schema.Config{Check: !s.migrate, Log: s.log})
	if err != nil {
		return err
	}
	if db != nil {
		s.owned.Database = db
		s.defers(db.Close)
	}
	dir, err := installation.OpenFolder(s.dataDir, s.node)
	if err != nil {
		return err
	}
	s.owned.Folder = dir
	s.defers(dir.Close)
	if s.belongs && s.config.NewInstallation {
		s.log.Warn("--new-installation has no effect, because the data folder belongs to an installation. Remove "+
			"the flag: with an empty data folder it would begin at 1", "dir", dir.Path)
	}
	if dir.Copied {
		s.log.Warn("the data folder was copied or restored: this generator gets a new name and worker. "+
			"If a NATS server's state was copied with it, and the original runs or has run since, IDs of tags will "+
			"repeat", "dir", dir.Path)
	}
	return nil
}

// openStores says where the tags and the workers are. Whose they are is found out later.
func (s *serving) openStores(ctx context.Context) error {
	nc := s.owned.State.Conn
	js, err := s.conn.JetStream(nc)
	if err != nil {
		return err
	}
	if s.embed && !s.belongs {
		if err := s.awaitJetStream(ctx, nc, js); err != nil { // the account of --nats-config may have none
			return err
		}
	}
	s.owned.State.JS, s.owned.State.Replicas, s.owned.State.Log = js, s.replicas, s.log
	s.owned.EventsMaxBytes, s.owned.EventsMaxAge, s.owned.Adopt = s.eventsMaxBytes, s.eventsMaxAge, s.adopt
	if s.zookeeper.hosts == "" {
		return nil
	}
	var closing sync.WaitGroup // at the same time, because each may take a few seconds
	s.defers(func() error { closing.Wait(); return nil })
	// Two connections, so that questions of administration do not hold up reports.
	for node, registry := range map[string]*installation.Registry{
		s.owned.Folder.Node: &s.owned.Workers, "": &s.owned.Administration,
	} {
		r, err := s.zookeeper.registry(node, s.config.Snowflake.Layout, s.owned.Server, s.log)
		if err != nil {
			return err
		}
		s.defers(func() error { closing.Go(r.Close); return nil })
		*registry = r
	}
	return nil
}
