package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/schema"
	"github.com/leafbus/leafbus/snowflake"
)

// checkOnly looks at what a start needs, starts nothing, and prints what it found as leaf doctor
// does.
func (s *serving) checkOnly() (err error) {
	ctx := s.cmd.Context()
	d := doctor{timeout: s.conn.Timeout}
	defer func() { err = errors.Join(err, s.close()) }()
	d.examine(ctx, "ports", func(ctx context.Context) (string, error) {
		return "the addresses of NATS and HTTP can be used", s.takePorts(ctx)
	})
	if s.embed {
		d.examine(ctx, "certificates", func(context.Context) (string, error) {
			return embedded.CheckCertificates(s.embedded("leaf", s.dataDir), time.Now())
		})
	}
	db, err := s.mysql.store(schema.Config{Check: true, Log: s.log})
	if err != nil {
		return err
	}
	if !s.embed { // else the generator brings its own NATS
		asker := cli.Client{Conn: s.conn}
		if err := asker.Run(s.cmd, func(s *cli.Session) error { d.examineNATS(s); return nil }); err != nil {
			d.add(failed("nats", err))
		}
	}
	d.examine(ctx, "folder", func(context.Context) (string, error) { return s.checkFolder(d.have.ID) })
	if db != nil {
		defer db.Close()
		d.examine(ctx, "mysql", func(ctx context.Context) (string, error) {
			return d.database(ctx, db)
		})
	}
	if s.zookeeper.hosts != "" {
		d.examine(ctx, "zookeeper", func(ctx context.Context) (string, error) {
			return s.zookeeper.examine(ctx, d.have, s.log)
		})
	}
	return d.conclude(s.cmd.OutOrStdout(), false)
}

// checkFolder checks the data folder. It writes and removes a file of 1 MiB there, unless a
// generator uses it.
func (s *serving) checkFolder(id string) (string, error) {
	look, err := installation.ExamineFolder(s.dataDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return look.Path + " does not exist yet", nil
	case err != nil:
		return "", err
	case look.Used != nil:
		return "", look.Used
	case id != "" && look.Installation != "" && look.Installation != id:
		return "", fmt.Errorf("the data folder %s belongs to installation %s, but this NATS is installation %s: name the "+
			"right --server, or another --data-dir", look.Path, look.Installation, id)
	}
	return look.Path + " is writable", embedded.CheckRoom(look.Path)
}

// database checks that the database has its tables, and belongs to the installation.
func (d *doctor) database(ctx context.Context, db *schema.Database) (string, error) {
	if d.have.ID != "" {
		if err := installation.ExamineDatabase(ctx, db, d.have); err != nil {
			return "", err
		}
	}
	if _, err := db.Migrate(ctx); err != nil {
		return "", err
	}
	tags, unfit, err := rowsOf(ctx, db)
	if len(unfit) > 0 {
		d.add(finding{Check: "mysql", State: stateWarning, Found: cli.Counted(len(unfit), "row") +
			" of the table cannot be served", Fix: "leaf migrate --check lists them: set them right, or delete them"})
	}
	return fmt.Sprintf("%s: the tables are fit, the account has its rights, %s", db.Name(), cli.Counted(tags, "tag")), err
}

// examine checks that ZooKeeper answers, and belongs to the installation.
func (f *zookeeperFlags) examine(
	ctx context.Context, have kvstore.Installation, log *slog.Logger,
) (string, error) {
	layout := have.Layout
	if have.ID == "" {
		layout = snowflake.DefaultLayout()
	}
	r, err := f.registry("", layout, nil, log)
	if err != nil {
		return "", err
	}
	defer r.Close()
	if have.ID == "" {
		of, _, err := r.Claim(ctx, "", false)
		if of != "" {
			of = ", and belongs to installation " + of
		}
		return r.Name() + " answers" + of, err
	}
	return r.Name() + " answers", installation.ExamineZooKeeper(ctx, r, have)
}
