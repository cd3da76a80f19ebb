package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/schema"
	"github.com/leafbus/leafbus/snowflake"
)

const (
	// littleRoom on the disk of the data folder is worth a warning, in bytes. By default, the event stream alone may
	// become as large.
	littleRoom = 256 << 20
	// mostNamed is how many tags a finding names.
	mostNamed = 3
	// claimTime is how long after its reservation a healthy generator has claimed a range.
	claimTime = time.Second
)

// folder checks the data folder.
func (d *doctor) folder(_ context.Context, log *slog.Logger) (string, error) {
	look, err := installation.ExamineFolder(d.dataDir)
	if errors.Is(err, fs.ErrNotExist) {
		log.Warn("there is no data folder "+look.Path, "fix",
			"give --data-dir as leaf serve has it, or start the generator, which makes it")
		return "", nil
	}
	if err == nil && look.Used == nil { // a file of ours could be in the way of a generator
		err = embedded.CheckRoom(look.Path)
	}
	if err != nil {
		return "", err
	}
	if d.have.ID != "" && look.Installation != "" && look.Installation != d.have.ID {
		log.Error(fmt.Sprintf("the data folder %s belongs to installation %s, but this NATS is installation %s", look.Path,
			look.Installation, d.have.ID),
			"fix", "name the right --server, or another --data-dir")
	}
	free, known := embedded.FreeRoom(look.Path)
	if known && free < littleRoom {
		log.Warn(fmt.Sprintf("the disk of the data folder %s has only %s free", look.Path, inMiB(free)), "fix",
			"free some room there")
	}
	found := look.Path + " is writable"
	if look.Used != nil {
		found = look.Path + " is used by a generator"
	}
	if known {
		found += ", " + inMiB(free) + " free"
	}
	return found, nil
}

// examineDatabase checks the database, and lets the generators compare its rows with the tags' records.
func (d *doctor) examineDatabase(ctx context.Context, db *schema.Database) {
	d.examine(ctx, "mysql", func(ctx context.Context, log *slog.Logger) (string, error) {
		if d.have.ID != "" {
			if err := installation.ExamineDatabase(ctx, db, d.have); err != nil {
				return "", err
			}
		}
		if _, err := db.Migrate(ctx); err != nil {
			return "", err
		}
		tags, unfit, err := rowsOf(ctx, db)
		if err != nil {
			return "", err
		}
		if len(unfit) > 0 {
			log.Warn(cli.Counted(len(unfit), "row")+" of the table cannot be served: "+some(unfit), "fix",
				"set them right, or delete them; leaf migrate --check lists them")
		}
		return fmt.Sprintf("%s: the tables are fit, the account has its rights, %s", db.Name(), cli.Counted(tags, "tag")), nil
	})
	if db.Err() == nil && len(d.look.nodes) > 0 && d.have.Store == installation.KindMySQL {
		d.examine(ctx, "records", func(ctx context.Context, log *slog.Logger) (string,
			error) {
			return d.records(ctx, db, log)
		})
	}
}

// records looks for rows that are below their records: the database went backwards. It also warns of tags whose max_id
// stays above all claims, as if another program reserved in the table.
func (d *doctor) records(ctx context.Context, db *schema.Database, log *slog.Logger) (string, error) {
	behind, ahead, compared, err := d.compareRows(ctx, db)
	if err != nil {
		return "", err
	}
	if len(behind) > 0 {
		return "", advise("find out why the database went backwards. No ID repeats: generators raise max_id at the next "+
			"refill, "+
			"and within --tag-refresh (docs/stores.md)",
			"max_id of %s in the database is below the tag's record: %s", cli.Counted(len(behind),
				"tag"), some(sortedValues(behind)))
	}
	found := fmt.Sprintf("%s compared: no row is below its record", cli.Counted(compared, "tag"))
	if len(ahead) == 0 {
		return found, nil
	}
	select {
	case <-time.After(claimTime): // generators may be about to claim what they reserved
	case <-ctx.Done(): // too early to say
		return found, nil
	}
	_, now, _, err := d.compareRows(ctx, db)
	if err != nil {
		return "", err
	}
	maps.DeleteFunc(now, func(tag, _ string) bool { return ahead[tag] == "" })
	if len(now) > 0 {
		log.Warn(fmt.Sprintf("max_id of %s is above what generators claimed: %s", cli.Counted(len(now), "tag"),
			some(sortedValues(now))),
			"fix", "a generator that was killed, SQL, or another program such as Leaf reserved the IDs between. If another "+
				"program does, take its account away: after a failover of the database that lost writes, its IDs and "+
				"those of Leafbus can be the same (docs/moving.md)")
	}
	return found, nil
}

// compareRows returns the tags whose rows are below or above their records, each with a text about both. It reads the
// records first, because a generator moves the row first.
func (d *doctor) compareRows(
	ctx context.Context, db *schema.Database,
) (behind, ahead map[string]string, compared int, err error) {
	ends := make(map[string]int64)
	err = kvstore.AuditSource(d.client, d.js).Records(ctx, "", func(r audit.Record) {
		if r.Order == bus.OrderTrend && r.Opaque == "" && !r.Deleted {
			ends[r.Tag] = int64(r.End)
		}
	})
	if err != nil {
		return nil, nil, 0, err
	}
	behind, ahead = make(map[string]string), make(map[string]string)
	err = db.Rows(ctx, func(r allocator.Row) {
		end, ok := ends[r.Name]
		if !ok || r.Problem != nil || r.MaxID == 0 {
			return
		}
		text := fmt.Sprintf("%s (max_id %d, claimed below %d)", r.Name, r.MaxID, end)
		switch compared++; {
		case r.MaxID < end:
			behind[r.Name] = text
		case r.MaxID > end:
			ahead[r.Name] = text
		}
	})
	return behind, ahead, compared, err
}

func sortedValues(m map[string]string) []string { return slices.Sorted(maps.Values(m)) }

// some names the first few.
func some(all []string) string {
	text := strings.Join(all[:min(len(all), mostNamed)], "; ")
	if len(all) > mostNamed {
		text += fmt.Sprintf("; and %d more", len(all)-mostNamed)
	}
	return text
}

// zooKeeper checks that ZooKeeper answers, and belongs to the installation.
func (d *doctor) zooKeeper(ctx context.Context, log *slog.Logger) (string, error) {
	layout := d.have.Layout
	if d.have.ID == "" {
		layout = snowflake.DefaultLayout()
	}
	r, err := d.zookeeper.registry("", layout, nil, log)
	if err != nil {
		return "", err
	}
	defer r.Close()
	if d.have.ID == "" {
		of, _, err := r.Claim(ctx, "", false)
		if err != nil {
			return "", err
		}
		if of == "" {
			return r.Name() + " answers, and belongs to no installation yet", nil
		}
		return fmt.Sprintf("%s answers, and belongs to installation %s", r.Name(), of), nil
	}
	if err := installation.ExamineZooKeeper(ctx, r, d.have); err != nil {
		return "", err
	}
	workers, err := r.List(ctx)
	if err != nil {
		return "", err
	}
	for _, w := range workers {
		if w.Rival != "" {
			log.Error(fmt.Sprintf("worker %d has two records in %s, of %s and %s", w.Worker, r.Name(), w.Node, w.Rival), "fix",
				"docs/stores.md#zookeeper")
		}
	}
	return fmt.Sprintf("%s answers, with %s", r.Name(), cli.Counted(len(workers), "worker")), nil
}
