package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/schema"
	"github.com/leafbus/leafbus/snowflake"
)

const (
	// littleRoom on the disk of the data folder is worth a warning, in bytes. By default, the event stream alone may
	// become as large.
	littleRoom = 256 << 20
	// mostNamed is how many tags a finding names.
	mostNamed = 3
	// mostAhead is how many tags are looked at again.
	mostAhead = 1000
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
	if err == nil && look.Used == nil { // a file of ours could be in the way of a generator
		err = embedded.CheckRoom(look.Path)
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
			log.Warn(counted(len(unfit), "row")+" of the table cannot be served: "+some(unfit), "fix", "set them right, or delete them; leaf migrate --check lists them")
		}
		return fmt.Sprintf("%s: the tables are fit, the account has its rights, %s", db.Name(), counted(tags, "tag")), nil
	})
	if db.Err() == nil && len(d.look.nodes) > 0 && d.have.Store == installation.KindMySQL {
		d.examine(ctx, "records", d.records)
	}
}

// records looks for rows that are below their records: the database went backwards. It also looks for the opposite.
func (d *doctor) records(ctx context.Context, log *slog.Logger) (string, error) {
	var behind, ahead []string // ahead: names
	compared := 0
	for req := (admin.ClaimsRequest{}); ; {
		page, err := d.client.Claims(ctx, req)
		if err != nil {
			return "", err
		}
		for _, c := range page.Claims {
			switch {
			case c.Order != bus.OrderTrend || c.Opaque != "" || c.MaxID == 0:
				continue
			case c.MaxID < c.End:
				behind = append(behind, rowAndRecord(c))
			case c.MaxID > c.End:
				ahead = append(ahead, c.Tag)
			}
			compared++
		}
		if req.After = page.Next; page.Next == "" {
			break
		}
	}
	if len(behind) > 0 {
		return "", advise("find out why the database went backwards. No ID repeats: generators raise max_id at the next refill, "+
			"and within --tag-refresh (docs/mysql.md)",
			"max_id of %s in the database is below the tag's record: %s", counted(len(behind), "tag"), some(behind))
	}
	found := fmt.Sprintf("%s compared: no row is below its record", counted(compared, "tag"))
	if len(ahead) == 0 {
		return found, nil
	}
	return found, d.unclaimed(ctx, ahead, log)
}

// rowAndRecord says where the row and the record of a tag are.
func rowAndRecord(c admin.TagClaims) string {
	return fmt.Sprintf("%s (max_id %d, claimed below %d)", c.Tag, c.MaxID, c.End)
}

// unclaimed warns of tags whose max_id stays above all claims, as if another program reserved in the table.
func (d *doctor) unclaimed(ctx context.Context, ahead []string, log *slog.Logger) error {
	select {
	case <-time.After(claimTime): // generators may be about to claim what they reserved
	case <-ctx.Done(): // too early to say
		return nil
	}
	page, err := d.client.Claims(ctx, admin.ClaimsRequest{Tags: ahead[:min(len(ahead), mostAhead)]})
	if err != nil {
		return err
	}
	var found []string
	for _, c := range page.Claims {
		if c.MaxID > c.End {
			found = append(found, rowAndRecord(c))
		}
	}
	if len(found) > 0 {
		log.Warn(fmt.Sprintf("max_id of %s is above what generators claimed: %s", counted(len(found), "tag"), some(found)),
			"fix", "a generator that was killed, SQL, or another program such as Leaf reserved the IDs between. If another "+
				"program does, take its account away: after a failover of the database that lost writes, its IDs and "+
				"those of Leafbus can be the same (docs/moving.md)")
	}
	return nil
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
