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

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
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
	// clockWarning is that of the Prometheus rule LeafClockOff.
	clockWarning = 500 * time.Millisecond
	// clockAnswers is how long the generators may take to say their time.
	clockAnswers = 500 * time.Millisecond
	// mostVarz bounds what a monitoring address may answer, in bytes.
	mostVarz = 4 << 20
)

// examineNATS runs the checks that need a connection.
func (d *doctor) examineNATS(ctx context.Context) {
	d.examine(ctx, "nats", d.versions)
	d.examine(ctx, "permissions", d.permissions)
	d.examine(ctx, "jetstream", d.jetStream)
	looking, cancel := context.WithTimeout(ctx, d.Timeout)
	d.look = lookAround(looking, d.client, d.js)
	cancel()
	if d.look.noJetStream() { // the check jetstream has said it
		return
	}
	d.examine(ctx, "installation", d.installation)
	d.examine(ctx, "streams", d.streams)
	if d.stream("KV_"+bus.BucketTags) != nil {
		d.examine(ctx, "keys", d.keys)
	}
	d.examine(ctx, "sync", d.sync)
	d.examine(ctx, "generators", d.generators)
	d.examine(ctx, "clocks", d.clocks)
}

func (d *doctor) versions(context.Context, *slog.Logger) (string, error) {
	if err := installation.CheckServer(d.nc); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s runs nats-server %s", d.nc.ConnectedUrlRedacted(), d.nc.ConnectedServerVersion()), nil
}

// jetStream checks JetStream, and how much the account may still store.
func (d *doctor) jetStream(ctx context.Context, log *slog.Logger) (string, error) {
	info, err := d.js.AccountInfo(ctx)
	if err != nil {
		return "", advise("enable JetStream on the server and for this account, and check --js-domain",
			"JetStream does not answer this user: %w", err)
	}
	d.wantsSizes = info.Limits.MaxBytesRequired
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
	return fmt.Sprintf("the account has stored %s, and has %s", inMiB(info.Store), limits), nil
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
	case !ok && d.stream("KV_"+bus.BucketTags) != nil && d.stream("KV_"+bus.BucketTags).State.Msgs > 0:
		return "", advise("write the record again, as docs/cluster.md says",
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

// stream returns what is known of a stream; nil: it does not exist, or cannot be read.
func (d *doctor) stream(name string) *jetstream.StreamInfo {
	for _, s := range d.look.streams {
		if s.name == name {
			return s.info
		}
	}
	return nil
}

// streams checks the streams' settings, replicas and room.
func (d *doctor) streams(ctx context.Context, log *slog.Logger) (string, error) {
	clustered := d.nc.ConnectedClusterName() != ""
	var names []string
	for _, before := range d.look.streams {
		s := lookAt(ctx, d.js, before.name)
		switch {
		case s.err != nil:
			log.Error("stream "+s.name+" cannot be read", "error", s.err, "fix", remedy("streams", s.err))
			continue
		case s.info == nil:
			continue
		}
		c := s.info.Config
		names = append(names, s.name)
		if bucket, ok := strings.CutPrefix(s.name, "KV_"); ok {
			if err := kvstore.Fit(bucket, c); err != nil {
				log.Error(err.Error())
			}
			if bucket == bus.BucketTags && c.MaxBytes > 0 && !d.wantsSizes {
				most := inMiB(uint64(c.MaxBytes))
				log.Error(fmt.Sprintf("stream %s may have %s at most, and once it is full no range is claimed", s.name, most),
					"fix", "nats stream edit "+s.name+" --max-bytes=-1")
			}
		} else {
			(&kvstore.Events{Config: kvstore.Config{Log: log}}).Inspect(c)
		}
		inspectRoom(s.info, log)
		if !clustered {
			continue
		}
		for _, why := range replicaLacks(s.info, before.info) {
			log.Error("stream "+s.name+": "+why, "fix", "start the server that is missing, or wait until its copy is complete")
		}
		if c.Replicas < leastReplicas {
			log.Warn(fmt.Sprintf("stream %s is kept by %s of a cluster: the loss of one can stop or lose it", s.name,
				cli.Counted(c.Replicas, "server")),
				"fix", "nats stream edit "+s.name+" --replicas 3, if the cluster has three servers with JetStream")
		}
	}
	if len(names) == 0 {
		return "none yet: the first generator makes them", nil
	}
	if !clustered {
		return fmt.Sprintf("%s: one server keeps them, because it is in no cluster", strings.Join(names, ", ")), nil
	}
	return fmt.Sprintf("%s: each copy is current", strings.Join(names, ", ")), nil
}

// keys looks for the master key of opaque tags. Whether there are such tags, and whether it fits them, each generator
// says.
func (d *doctor) keys(ctx context.Context, log *slog.Logger) (string, error) {
	there, err := kvstore.HasMaster(ctx, kvstore.Config{Conn: d.nc, JS: d.js, Log: log})
	const restore = "create no opaque tag, restart no generator, and restore the bucket: " +
		"docs/security.md#when-keys-are-lost"
	switch {
	case errors.Is(err, allocator.ErrDamaged):
		return "", advise(restore, "%w", err)
	case err != nil:
		log.Warn(fmt.Sprintf("the master key of opaque tags cannot be read: %v", err), "fix",
			"run leaf doctor as the user of the generators")
	case !there:
		return "no master key: no opaque tag was created, or generators say that it is lost (see generators)", nil
	}
	return "the master key of opaque tags is there", nil
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
	own := make(map[string]bool) // servers inside generators
	for _, s := range d.look.nodes {
		own[s.Server] = own[s.Server] || s.Embedded
	}
	servers := []string{d.server()}
	for _, s := range d.look.streams {
		if s.info != nil && s.info.Cluster != nil {
			for _, r := range s.info.Cluster.Replicas {
				servers = append(servers, r.Name)
			}
			if leader := s.info.Cluster.Leader; leader != "" {
				servers = append(servers, leader)
			}
		}
	}
	slices.Sort(servers)
	servers = slices.Compact(servers)
	others := slices.DeleteFunc(slices.Clone(servers), func(name string) bool { return own[name] })
	if len(others) > 0 {
		log.Warn("it cannot be seen from here whether these NATS servers sync each write: "+strings.Join(others, ", "),
			"fix", "look for `sync_interval: always` in the section jetstream of their configurations, or give --nats-monitor")
	}
	return "each write is synced: the servers run in generators (" + strings.Join(servers, ", ") + ")", nil
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

// generators checks what the generators say of themselves.
func (d *doctor) generators(_ context.Context, log *slog.Logger) (string, error) {
	if d.look.err != nil {
		return "", d.look.err
	}
	for _, s := range d.look.nodes {
		for _, what := range s.Missing {
			log.Error(fmt.Sprintf("generator %s lacks its %s: %s", s.Node, what, s.Reasons[what]), "fix",
				"docs/runbook.md#leafnotready")
		}
	}
	for _, l := range admin.LostNodes(d.look.nodes) {
		log.Error(fmt.Sprintf("generator %s is lost, last heard %v ago", l.Node,
			(time.Duration(l.SilentMS)*time.Millisecond).Truncate(time.Second)),
			"fix", "start it again with its data folder, or, if it is gone for good, release its worker: leaf workers release N")
	}
	if len(d.look.nodes) == 0 {
		log.Error("no generator answers", "fix", "start one with leaf serve")
		return "", nil
	}
	if server := common(d.look.nodes, natsServer); len(d.look.nodes) > 1 && server != "" &&
		d.nc.ConnectedClusterName() != "" {
		log.Warn(fmt.Sprintf("all generators (%s) use the NATS server %s: while it hangs, every call fails",
			names(d.look.nodes), server), "fix", fixSpread)
	}
	return "ready: " + names(d.look.nodes), nil
}

// clocks compares the clock of this machine with those of the NATS server and the generators.
func (d *doctor) clocks(ctx context.Context, log *slog.Logger) (string, error) {
	var found []string
	note := func(whose string, then, sent time.Time) {
		half := time.Since(sent) / 2 // then was read between sent and now
		ahead := then.Sub(sent.Add(half)).Round(time.Millisecond)
		text := fmt.Sprintf("%s is %v ahead of this machine", whose, ahead)
		if ahead < 0 {
			text = fmt.Sprintf("%s is %v behind this machine", whose, -ahead)
		}
		found = append(found, text)
		fix := "check NTP on both machines"
		switch least := ahead.Abs() - half; {
		case least > snowflake.DefaultMaxClockSkew:
			log.Error("the clocks differ: "+text+", so a generator that starts may get no worker", "fix", fix)
		case least > clockWarning:
			log.Warn("the clocks differ: "+text, "fix", fix)
		}
	}
	sent := time.Now()
	if s := lookAt(ctx, d.js, d.look.streams[0].name); s.info != nil && !s.info.TimeStamp.IsZero() {
		note("the NATS server", s.info.TimeStamp, sent)
	}
	if err := d.askClocks(ctx, note); err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "no other clock answers", nil
	}
	return strings.Join(found, "; "), nil
}

// askClocks asks all generators that hold a worker for their time.
func (d *doctor) askClocks(ctx context.Context, note func(whose string, then, sent time.Time)) error {
	answers, err := d.nc.SubscribeSync(d.nc.NewInbox())
	if err != nil {
		return err
	}
	defer func() { _ = answers.Unsubscribe() }()
	sent := time.Now()
	if err := d.nc.PublishRequest(bus.SubjectClock, answers.Subject, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, clockAnswers)
	defer cancel()
	for {
		msg, err := answers.NextMsgWithContext(ctx)
		if err != nil { // no more, or none at all
			return nil
		}
		var c bus.ClockReply
		if errors.Is(bus.ReplyError(msg), nats.ErrNoResponders) || json.Unmarshal(msg.Data, &c) != nil {
			continue
		}
		note(c.Node, time.UnixMilli(c.UnixMS), sent)
	}
}
