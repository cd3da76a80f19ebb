package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/internal/wire"
)

// fullPercent of what a stream may store is worth a warning.
const fullPercent = 80

// examineNATS runs the checks of NATS and of the generators. An error is one of usage: what is wrong elsewhere is a
// finding. What follows from a JetStream that does not answer is left out.
func (d *doctor) examineNATS(cmd *cobra.Command) (err error) {
	ctx := cmd.Context()
	if d.nc, err = d.Connect(cmd); err != nil {
		if _, ok := errors.AsType[cli.UsageError](err); ok {
			return err
		}
		_, d.nobody = errors.AsType[cli.Nobody](err)
		d.add(failed("nats", err))
		return nil
	}
	defer d.nc.Close()
	js, err := d.JetStream(d.nc)
	if err != nil {
		return err
	}
	d.examine(ctx, "nats", func(context.Context, *slog.Logger) (string, error) {
		return fmt.Sprintf("%s runs nats-server %s", d.nc.ConnectedUrlRedacted(), d.nc.ConnectedServerVersion()),
			installation.CheckServer(d.nc)
	})
	d.examine(ctx, "permissions", d.permissions)
	looking, cancel := context.WithTimeout(ctx, d.Timeout)
	d.look = lookAround(looking, admin.NewClient(d.nc, admin.Timeout(d.Timeout)), js)
	account, silence := js.AccountInfo(looking)
	cancel()
	d.nobody = len(d.look.nodes) == 0 && d.look.err == nil && !d.mayBeFirst
	if silence = cmp.Or(silence, d.look.streams[0].err); silence != nil {
		f := jetStreamFinding(denied(d.nc, silence))
		f.Check = "jetstream"
		d.add(f)
	} else {
		d.examine(ctx, "installation", func(ctx context.Context, log *slog.Logger) (string, error) {
			return d.installation(ctx, kvstore.Config{Conn: d.nc, JS: js, Log: log})
		})
		d.examine(ctx, "streams", func(_ context.Context, log *slog.Logger) (string, error) {
			d.streams(account.Limits.MaxBytesRequired, log)
			return "their settings are fit", nil
		})
	}
	d.examine(ctx, "generators", func(_ context.Context, log *slog.Logger) (string, error) {
		for _, f := range d.look.findings(look{}) {
			if f.State != "" && (len(d.look.nodes) > 0 || !d.mayBeFirst) && (silence == nil || f.Check != "streams") {
				d.add(f)
			}
		}
		if slices.ContainsFunc(d.look.nodes, func(s admin.State) bool { return !s.Embedded }) {
			log.Warn("it cannot be seen from here whether the NATS servers that were joined sync each write", "fix",
				"look for sync_always in http://HOST:8222/varz (docs/operate.md)")
		}
		return cmp.Or(names(d.look.nodes), "none runs"), nil
	})
	return nil
}

// installation reads the record of the installation.
func (d *doctor) installation(ctx context.Context, cfg kvstore.Config) (string, error) {
	have, ok, err := kvstore.ReadInstallation(ctx, cfg)
	if tags := d.look.stream("KV_" + wire.BucketTags); err == nil && !ok && tags != nil && tags.State.Msgs > 0 {
		err = errors.New("JetStream has tags, but lost the record of the installation: write it again, as " +
			"docs/operate.md says")
	}
	if err != nil || !ok {
		return "this NATS has no installation yet: the first generator makes it, " +
			"unless one waits for a record (see generators)", err
	}
	d.have = have
	return fmt.Sprintf("installation %s of %s: tags in %s, workers in %s", have.ID, cli.Time(have.Created), have.Store,
		have.Registry), nil
}

// streams checks the settings of the streams. sized: the account demands that each one has a limit of bytes.
func (d *doctor) streams(sized bool, log *slog.Logger) {
	for _, s := range d.look.streams {
		if s.info == nil {
			continue
		}
		c := s.info.Config
		bucket, isBucket := strings.CutPrefix(s.name, "KV_")
		if !isBucket {
			(&kvstore.Events{Config: kvstore.Config{Log: log}}).Inspect(c)
			continue
		}
		if err := kvstore.Fit(bucket, c); err != nil {
			log.Error(err.Error())
		}
		switch full := s.info.State.Bytes >= uint64(max(c.MaxBytes, 0))/100*fullPercent; {
		case c.MaxBytes > 0 && sized && full:
			log.Warn(fmt.Sprintf("stream %s has %d MiB of %d, and takes no writes when it is full", s.name,
				s.info.State.Bytes>>20, c.MaxBytes>>20), "fix", "nats stream edit "+s.name+" --max-bytes SIZE")
		case c.MaxBytes > 0 && !sized, c.MaxMsgs > 0:
			log.Error("stream "+s.name+" has a limit, and takes no writes when it is full", "fix",
				"nats stream edit "+s.name+" --max-bytes=-1 --max-msgs=-1")
		}
	}
}
