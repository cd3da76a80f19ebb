package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/snowflake"
)

const (
	// fullPercent of a limit is worth a warning.
	fullPercent = 80
	// leastMessage is what the largest record or event may need, in bytes.
	leastMessage = 16 << 10
	// clockWarning is that of the finding clock.off.
	clockWarning = 500 * time.Millisecond
	// mostVarz bounds what a monitoring address may answer, in bytes.
	mostVarz = 4 << 20
)

// examineNATS runs the checks that need a connection. What follows from a JetStream that does not answer is left out.
func (d *doctor) examineNATS(ctx context.Context) {
	d.examine(ctx, "nats", d.versions)
	d.examine(ctx, "permissions", d.permissions)
	looking, cancel := context.WithTimeout(ctx, d.Timeout)
	d.look = lookAround(looking, d.client, d.js)
	cancel()
	answers := d.jetStream(ctx)
	if answers {
		d.examine(ctx, "installation", d.installation)
		d.examine(ctx, "streams", d.streams)
		d.examine(ctx, "sync", d.sync)
	}
	d.examine(ctx, "generators", func(context.Context, *slog.Logger) (string, error) {
		for _, f := range d.look.findings(look{}) {
			if f.State != "" && (len(d.look.nodes) > 0 || !d.mayBeFirst) && (answers || f.Check != "streams") {
				d.add(f)
			}
		}
		if len(d.look.nodes) == 0 {
			return "none runs", nil
		}
		return "ready: " + names(d.look.nodes), nil
	})
	d.examine(ctx, "clocks", d.clocks)
}

func (d *doctor) versions(context.Context, *slog.Logger) (string, error) {
	if err := installation.CheckServer(d.nc); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s runs nats-server %s", d.nc.ConnectedUrlRedacted(), d.nc.ConnectedServerVersion()), nil
}

// jetStream checks JetStream, and how much the account may still store. It reports whether JetStream answers.
func (d *doctor) jetStream(ctx context.Context) (answers bool) {
	d.examine(ctx, "jetstream", func(ctx context.Context, log *slog.Logger) (string, error) {
		info, err := d.js.AccountInfo(ctx)
		for _, s := range d.look.streams {
			if api, ok := errors.AsType[*jetstream.APIError](s.err); ok && err == nil && api.Code == 503 {
				err = s.err // the server knows the account, and no leader that knows the streams
			}
		}
		if err != nil {
			f := jetStreamFinding(denied(d.nc, err))
			return "", advise(f.Fix, "%s", f.Found)
		}
		answers = true
		return d.account(info, log), nil
	})
	return answers
}

// account checks how much the account may still store.
func (d *doctor) account(info *jetstream.AccountInfo, log *slog.Logger) string {
	tiers := info.Tiers // by the number of replicas, if the account has limits for each; then info.Tier has the sums
	if len(tiers) == 0 {
		tiers = map[string]jetstream.Tier{"": info.Tier}
	}
	limits := "no limit"
	for name, tier := range tiers {
		most := tier.Limits.MaxStore
		if most <= 0 {
			continue
		}
		limits = "limits"
		if tier.Store >= uint64(most)/100*fullPercent {
			log.Warn(strings.TrimSpace(fmt.Sprintf("the account has used %s of the %s that it may store %s", inMiB(tier.Store),
				inMiB(uint64(most)), name)),
				"fix", "raise the account's max_file, or delete what it does not need")
		}
	}
	d.wantsSizes = info.Limits.MaxBytesRequired
	return fmt.Sprintf("the account has stored %s, and has %s", inMiB(info.Store), limits)
}

func inMiB(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// installation reads the record of the installation, and compares it with the flags.
func (d *doctor) installation(ctx context.Context, log *slog.Logger) (string, error) {
	if err := d.look.streams[0].err; err != nil {
		return "", err
	}
	have, ok, err := kvstore.ReadInstallation(ctx, kvstore.Config{Conn: d.nc, JS: d.js, Log: log})
	switch {
	case err != nil:
		return "", err
	case !ok && hasTags(d.look.stream("KV_"+bus.BucketTags)):
		return "", advise("write the record again, as docs/operate.md says",
			"JetStream has tags, but lost the record of the installation")
	case !ok:
		return "this NATS has no installation yet: the first generator makes it, " +
			"unless one waits for a record (see generators)", nil
	}
	d.have = have
	for _, kept := range []struct{ what, flag, given, want, have string }{
		{"tags", "--mysql", d.mysql.dsn, installation.KindMySQL, have.Store},
		{"workers", "--zookeeper", d.zookeeper.hosts, installation.KindZooKeeper, have.Registry},
	} {
		switch is := kept.have == kept.want; {
		case is && kept.given == "":
			log.Warn(fmt.Sprintf("the %s of this installation are in %s, which is not checked", kept.what, kept.have), "fix",
				"give "+kept.flag+" too")
		case !is && kept.given != "":
			log.Error(fmt.Sprintf("the %s of this installation are in JetStream: a generator with %s is refused", kept.what,
				kept.flag),
				"fix", "leave out "+kept.flag+", or join another NATS")
		}
	}
	return fmt.Sprintf("installation %s of %s: tags in %s, workers in %s", have.ID, cli.Time(have.Created), have.Store,
		have.Registry), nil
}

// hasTags reports whether a stream has records of tags.
func hasTags(s *jetstream.StreamInfo) bool { return s != nil && s.State.Msgs > 0 }

// streams checks the streams' settings and room.
func (d *doctor) streams(_ context.Context, log *slog.Logger) (string, error) {
	var names []string
	for _, s := range d.look.streams {
		if s.info == nil {
			continue
		}
		c := s.info.Config
		names = append(names, s.name)
		if bucket, ok := strings.CutPrefix(s.name, "KV_"); ok {
			if err := kvstore.Fit(bucket, c); err != nil {
				log.Error(err.Error())
			}
			if bucket == bus.BucketTags && c.MaxBytes > 0 && !d.wantsSizes {
				log.Error(fmt.Sprintf("stream %s may have %s at most, and once it is full no range is claimed", s.name,
					inMiB(uint64(c.MaxBytes))), "fix", "nats stream edit "+s.name+" --max-bytes=-1")
			}
		} else {
			(&kvstore.Events{Config: kvstore.Config{Log: log}}).Inspect(c)
		}
		inspectRoom(s.info, log)
	}
	if len(names) == 0 {
		return "none yet: the first generator makes them", nil
	}
	return strings.Join(names, ", ") + ": their settings are fit", nil
}

// inspectRoom logs why a stream takes no messages, or soon takes none.
func inspectRoom(info *jetstream.StreamInfo, log *slog.Logger) {
	c := info.Config
	if c.MaxMsgSize > 0 && c.MaxMsgSize < leastMessage {
		log.Error(fmt.Sprintf("stream %s takes no message of more than %d bytes", c.Name, c.MaxMsgSize), "fix",
			"nats stream edit "+c.Name+" --max-msg-size=-1")
	}
	if c.Discard != jetstream.DiscardNew {
		return
	}
	if c.MaxBytes > 0 && info.State.Bytes >= uint64(c.MaxBytes)/100*fullPercent {
		log.Warn(fmt.Sprintf("stream %s has %s of %s, and takes no writes when it is full", c.Name, inMiB(info.State.Bytes),
			inMiB(uint64(c.MaxBytes))),
			"fix", "nats stream edit "+c.Name+" --max-bytes SIZE")
	}
	if c.MaxMsgs > 0 && info.State.Msgs*100 >= uint64(c.MaxMsgs)*fullPercent {
		log.Warn(fmt.Sprintf("stream %s has %d of %d messages, and takes no writes when it is full", c.Name, info.State.Msgs,
			c.MaxMsgs),
			"fix", "nats stream edit "+c.Name+" --max-msgs=-1")
	}
}

// varz is what a monitoring address says of its server, as far as it is needed.
type varz struct {
	Name      string `json:"server_name"`
	JetStream struct {
		Config struct {
			SyncAlways   bool          `json:"sync_always"`
			SyncInterval time.Duration `json:"sync_interval"`
			MaxStore     int64         `json:"max_storage"`
		} `json:"config"`
		Stats struct {
			Store uint64 `json:"storage"`
		} `json:"stats"`
	} `json:"jetstream"`
}

// sync checks whether the servers force each write to their disks. Clients cannot see that of a server that was joined.
func (d *doctor) sync(ctx context.Context, log *slog.Logger) (string, error) {
	if d.monitor != "" {
		return d.askMonitor(ctx, log)
	}
	if len(d.look.nodes) == 0 || slices.ContainsFunc(d.look.nodes, func(s admin.State) bool { return !s.Embedded }) {
		log.Warn("it cannot be seen from here whether the NATS servers that were joined sync each write",
			"fix", "look for `sync_interval: always` in the section jetstream of their configurations, or give --nats-monitor")
	}
	return "each write is synced: the NATS servers run in generators", nil
}

// askMonitor asks a server's monitoring address whether it syncs each write, and how much room it has.
func (d *doctor) askMonitor(ctx context.Context, log *slog.Logger) (string, error) {
	ask := func() (v varz, err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(d.monitor, "/")+"/varz", nil)
		if err != nil {
			return v, err
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			return v, err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return v, errors.New(answer.Status)
		}
		return v, json.NewDecoder(http.MaxBytesReader(nil, answer.Body, mostVarz)).Decode(&v)
	}
	v, err := ask()
	if err != nil {
		return "", advise("give --nats-monitor the server's http port, which its configuration opens",
			"the monitoring address does not answer: %w", err)
	}
	config, used := v.JetStream.Config, v.JetStream.Stats.Store
	if !config.SyncAlways {
		log.Error(fmt.Sprintf("the NATS server %s syncs its disk only every %v: a power failure can lose confirmed writes, "+
			"and IDs repeat", v.Name, config.SyncInterval),
			"fix", "set `sync_interval: always` in the section jetstream of its configuration, and restart it")
	}
	if config.MaxStore > 0 && used >= uint64(config.MaxStore)/100*fullPercent {
		log.Warn(fmt.Sprintf("the NATS server %s has stored %s of the %s that JetStream may use", v.Name, inMiB(used),
			inMiB(uint64(config.MaxStore))),
			"fix", "free room on its disk, or raise max_file_store")
	}
	return fmt.Sprintf("the NATS server %s syncs each write, and has stored %s of %s", v.Name, inMiB(used),
		inMiB(uint64(max(config.MaxStore, 0)))), nil
}

// clocks compares the clock of this machine with those of the NATS server and the generators.
func (d *doctor) clocks(_ context.Context, log *slog.Logger) (string, error) {
	clocks := make(map[string]time.Time)
	for _, s := range d.look.streams {
		if s.info != nil && !s.info.TimeStamp.IsZero() {
			clocks["the NATS server"] = s.info.TimeStamp
		}
	}
	for _, s := range d.look.nodes {
		clocks[s.Node] = time.UnixMilli(s.Clock.UnixMS)
	}
	for whose, is := range clocks { // each was read between asked and answered
		by := max(d.look.asked.Sub(is), is.Sub(d.look.answered)).Round(time.Millisecond)
		text := fmt.Sprintf("the clocks of %s and of this machine differ by at least %v", whose, by)
		switch fix := "check NTP on both machines"; {
		case by > snowflake.DefaultMaxClockSkew:
			log.Error(text+", so a generator that starts may get no worker", "fix", fix)
		case by > clockWarning:
			log.Warn(text, "fix", fix)
		}
	}
	return fmt.Sprintf("%d clocks compared with that of this machine", len(clocks)), nil
}
