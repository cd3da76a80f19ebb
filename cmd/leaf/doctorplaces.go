package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/schema"
	"github.com/leafbus/leafbus/snowflake"
)

const (
	// littleRoom on the disk of the data folder is worth a warning, in bytes. By default, the event stream alone may become as large.
	littleRoom = 256 << 20
	// mostNamed is how many tags a finding names.
	mostNamed = 3
	// tagsAPage is how many tags are read at a time.
	tagsAPage = 1000
	// claimTime is how long after its reservation a healthy generator has claimed a range.
	claimTime = time.Second
)

// folder checks the data folder.
func (d *doctor) folder(_ context.Context, log *slog.Logger) (string, error) {
	look, err := installation.ExamineFolder(d.dataDir)
	if errors.Is(err, fs.ErrNotExist) {
		log.Warn("there is no data folder "+look.Path, "fix", "give --data-dir as leaf serve has it, or start the generator, which makes it")
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if d.have.ID != "" && look.Installation != "" && look.Installation != d.have.ID {
		log.Error(fmt.Sprintf("the data folder %s belongs to installation %s, but this NATS is installation %s", look.Path, look.Installation, d.have.ID),
			"fix", "name the right --server, or another --data-dir")
	}
	free, known := embedded.FreeRoom(look.Path)
	if known && free < littleRoom {
		log.Warn(fmt.Sprintf("the disk of the data folder %s has only %s free", look.Path, inMiB(free)), "fix", "free some room there")
	}
	found := look.Path + " is writable"
	if look.Used {
		found = look.Path + " is used by a generator" + look.User
	}
	if known {
		found += ", " + inMiB(free) + " free"
	}
	return found, nil
}

// examineDatabase checks the database, and compares its tags with the ledger.
func (d *doctor) examineDatabase(ctx context.Context, db *schema.Store) {
	tags := 0
	d.examine(ctx, "mysql", func(ctx context.Context, log *slog.Logger) (string, error) {
		if d.have.ID != "" {
			if err := installation.ExamineDatabase(ctx, db, d.have); err != nil {
				return "", err
			}
		}
		if _, err := db.Migrate(ctx); err != nil {
			return "", err
		}
		var unfit []string
		var err error
		if tags, unfit, err = rowsOf(ctx, db); err != nil {
			return "", err
		}
		if len(unfit) > 0 {
			log.Warn(counted(len(unfit), "row")+" of the table cannot be served: "+some(unfit), "fix", "set them right, or delete them; leaf migrate --check lists them")
		}
		return fmt.Sprintf("%s: the tables are fit, the account has its rights, %s", db.Name(), counted(tags, "tag")), nil
	})
	if db.Err() == nil && d.stream("KV_"+bus.BucketLedger) != nil {
		d.examine(ctx, "ledger", func(ctx context.Context, log *slog.Logger) (string, error) { return d.ledger(ctx, db, log) })
	}
}

// ledger looks for tags that the database has set back: their max_id is below the end of what was claimed. The ledger is
// read first, so claims that are made meanwhile do not look like that. It also looks for the opposite.
func (d *doctor) ledger(ctx context.Context, db *schema.Store, log *slog.Logger) (string, error) {
	if c := d.stream("KV_" + bus.BucketLedger).Config; !c.DenyPurge || !c.DenyDelete || c.AllowDirect { // opening it would change it
		log.Warn("the bucket "+bus.BucketLedger+" was made by hand, and lets its records be purged or read from a replica",
			"fix", "restart a generator with --mysql, which changes that, and run leaf doctor again")
		return "", nil
	}
	bucket, err := kvstore.OpenLedger(ctx, kvstore.Config{Conn: d.nc, JS: d.js, Log: log})
	if err != nil {
		return "", err
	}
	ends, err := endsOf(ctx, bucket)
	if err != nil {
		return "", err
	}
	if err := db.Open(ctx); err != nil {
		return "", err
	}
	var behind []string
	ahead := make(map[string]int64) // max_ids that are above the ledger's end
	compared := 0
	for after := ""; ; {
		page, err := db.List(ctx, allocator.Query{After: after, Limit: tagsAPage})
		if err != nil {
			return "", err
		}
		for _, t := range page {
			after = t.Name
			end, ok := ends[t.Name]
			if !ok {
				continue
			}
			compared++
			if t.MaxID > end {
				ahead[t.Name] = t.MaxID
			}
			if t.MaxID < end { // a replica that lags may have answered
				t, err = db.Stored(ctx, t.Name, end)
				if err != nil && !errors.Is(err, allocator.ErrUnknownTag) && !errors.Is(err, allocator.ErrDeleted) {
					return "", err
				}
				if err == nil && t.MaxID < end {
					behind = append(behind, fmt.Sprintf("%s (max_id %d, claimed below %d)", t.Name, t.MaxID, end))
				}
			}
		}
		if len(page) < tagsAPage {
			break
		}
	}
	if len(behind) > 0 {
		return "", advise("find out why the database went backwards. Generators move max_id up at the next refill, but with --shared-table an operator must: "+
			"leaf tag set TAG --max-id N (docs/runbook.md#leafstoreregressed)",
			"max_id of %s in the database is below what the ledger says is claimed: %s", counted(len(behind), "tag"), some(behind))
	}
	found := fmt.Sprintf("%s compared: none is behind the ledger", counted(compared, "tag"))
	if len(ahead) == 0 {
		return found, nil
	}
	return found, unclaimed(ctx, bucket, ahead, log)
}

// endsOf returns below which ID each tag is claimed, for all that may be in the database.
func endsOf(ctx context.Context, bucket *kvstore.LedgerBucket) (map[string]int64, error) {
	ends := make(map[string]int64)
	err := bucket.Each(ctx, func(tag string, e allocator.Entry) {
		if e.Order != allocator.Strict {
			ends[tag] = e.End
		}
	})
	return ends, err
}

// unclaimed warns of tags whose max_id stays above all claims, as if another program reserved in the table.
func unclaimed(ctx context.Context, bucket *kvstore.LedgerBucket, ahead map[string]int64, log *slog.Logger) error {
	select {
	case <-time.After(claimTime): // generators may be about to claim what they reserved
	case <-ctx.Done(): // too early to say
		return nil
	}
	var found []string
	err := bucket.Each(ctx, func(tag string, e allocator.Entry) {
		// The last range before a limit is claimed only up to it.
		if at := ahead[tag]; e.Order == allocator.Trend && e.End < at && e.Rules.Left(e.End) > 0 {
			found = append(found, fmt.Sprintf("%s (max_id %d, claimed below %d)", tag, at, e.End))
		}
	})
	if err == nil && len(found) > 0 {
		slices.Sort(found)
		log.Warn(fmt.Sprintf("max_id of %s is above what generators claimed: %s", counted(len(found), "tag"), some(found)),
			"fix", "a generator that was killed, SQL, or another program such as Leaf reserved the IDs between. If another program does, give --shared-table to "+
				"all generators, or take its account away; then leaf tag advance --all (docs/moving.md)")
	}
	return err
}

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
			log.Error(fmt.Sprintf("worker %d has two records in %s, of %s and %s", w.Worker, r.Name(), w.Node, w.Rival), "fix", "docs/zookeeper.md")
		}
	}
	return fmt.Sprintf("%s answers, with %s", r.Name(), counted(len(workers), "worker")), nil
}
