package tests

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/zookeeper"
)

// diagnosed is the JSON of leaf doctor.
type diagnosed struct {
	State  string `json:"state"`
	Checks []struct {
		Check string `json:"check"`
		State string `json:"state"`
		Found string `json:"found"`
		Fix   string `json:"fix"`
	} `json:"checks"`
}

// doctor runs leaf doctor --json. Its state and its exit status must agree.
func doctor(t *testing.T, args ...string) (d diagnosed) {
	t.Helper()
	r := leaf(t, append([]string{"doctor", "--json"}, args...)...)
	d = parse[diagnosed](t, []byte(r.stdout))
	worst, status := "ok", 0
	for _, c := range d.Checks {
		switch {
		case c.State == "problem":
			worst, status = c.State, 1
		case c.State == "warning" && worst == "ok":
			worst = c.State
		}
		if c.Found == "" {
			t.Errorf("the check %s found nothing", c.Check)
		}
	}
	if d.State != worst || r.status != status {
		t.Errorf("the state is %q, want %q, and the exit status %d, want %d: %s %s", d.State, worst, r.status, status, r.stdout, r.stderr)
	}
	return d
}

// want demands that a check has a state, and that one of its lines says all of this.
func (d diagnosed) want(t *testing.T, check, state string, says ...string) {
	t.Helper()
	var lines []string
	for _, c := range d.Checks {
		line := c.Found + ". Fix: " + c.Fix
		if c.Check != check {
			continue
		}
		lines = append(lines, c.State+" "+line)
		if c.State == state && !slices.ContainsFunc(says, func(text string) bool { return !strings.Contains(line, text) }) {
			return
		}
	}
	t.Errorf("the check %s has no line of state %s that says %q, but %q", check, state, says, lines)
}

// All that a generator needs is there, and leaf doctor says so of each part.
func TestDoctorFindsAllWell(t *testing.T) {
	t.Parallel()
	dsn, p := mariadb.NewDatabase(t), newPlace(t, zookeeper.Hosts(t))
	g := embed(t, p.flags("--mysql", dsn, "--tag", "order")...)
	nc := connect(t, g.url)
	granted(t, ask(t, nc, "leaf.segment.order", ""))
	snowflake(t, nc)
	js := jetStream(t, nc)
	events := func() uint64 {
		s, err := js.Stream(t.Context(), bus.EventStream)
		must(t, err)
		return s.CachedInfo().State.LastSeq
	}
	args := p.flags("-s", g.url, "--mysql", dsn, "--data-dir", g.folder)
	before := events()
	d := doctor(t, args...)
	var checks []string
	for _, c := range d.Checks {
		checks = append(checks, c.Check)
		if c.State != "ok" {
			t.Errorf("%+v", c)
		}
	}
	if want := "nats permissions jetstream installation streams keys sync generators clocks folder mysql ledger zookeeper"; strings.Join(checks, " ") != want {
		t.Errorf("the checks are %q, want %q", checks, want)
	}
	if after := events(); after != before {
		t.Errorf("it left %d messages in the event stream", after-before)
	}
	d.want(t, "nats", "ok", g.url, server.VERSION)
	d.want(t, "sync", "ok", g.node)
	d.want(t, "generators", "ok", g.node)
	d.want(t, "clocks", "ok", "the NATS server", g.node)
	d.want(t, "folder", "ok", g.folder, fmt.Sprintf("used by a generator (process %d)", g.cmd.Process.Pid))
	d.want(t, "mysql", "ok", "1 tag")
	d.want(t, "ledger", "ok", "1 tag compared")

	lines := strings.Split(strings.TrimSuffix(leafOK(t, append([]string{"doctor"}, args...)...), "\n"), "\n")
	if len(lines) != len(d.Checks) || !strings.HasPrefix(lines[0], "ok       nats         nats://") {
		t.Errorf("in the terminal: %q", lines)
	}
	d = doctor(t, "-s", g.url)
	d.want(t, "installation", "warning", "the tags of this installation are in mysql", "--mysql")
	d.want(t, "installation", "warning", "the workers of this installation are in zookeeper", "--zookeeper")
	d.want(t, "folder", "warning", "there is no data folder", "--data-dir")
	g.stop()
	doctor(t, "--data-dir", g.folder, "-s", g.url).want(t, "folder", "ok", "is writable", "free")
}

// startPlain starts a NATS server as an operator does who knows nothing of Leafbus, with a monitoring address.
func startPlain(t *testing.T, o server.Options) (url, monitor string) {
	t.Helper()
	o.Host, o.Port, o.HTTPHost, o.HTTPPort, o.NoLog, o.NoSigs, o.StoreDir = "127.0.0.1", -1, "127.0.0.1", -1, true, true, t.TempDir()
	s, err := server.NewServer(&o)
	must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server is not ready")
	}
	return s.ClientURL(), "http://" + s.MonitorAddr().String()
}

// What is wrong with NATS.
func TestDoctorFindsWhatIsWrongWithNATS(t *testing.T) {
	t.Parallel()
	doctor(t, "-s", "nats://"+testkit.FreeAddress(t)).want(t, "nats", "problem", "no NATS server at", "leaf serve")
	doctor(t, "-s", "nats://"+startOldNATS(t, "127.0.0.1:0", "2.9.20").address, "--timeout", "1s").want(t, "nats", "problem", "2.9.20", "upgrade")
	doctor(t, "-s", plainNATS(t)).want(t, "jetstream", "problem", "JetStream does not answer", "enable JetStream")

	url, monitor := startPlain(t, server.Options{JetStream: true})
	d := doctor(t, "-s", url)
	d.want(t, "installation", "ok", "no installation yet")
	d.want(t, "streams", "ok", "none yet")
	d.want(t, "generators", "problem", "no generator answers", "leaf serve")
	d.want(t, "sync", "warning", "cannot be seen from here", "sync_interval: always")
	if infos := jetStream(t, connect(t, url)).ListStreams(t.Context()).Info(); len(infos) > 0 {
		t.Error("it made a stream")
	}
	doctor(t, "-s", url, "--nats-monitor", monitor).want(t, "sync", "problem", "only every 2m0s", "sync_interval: always")
	doctor(t, "-s", url, "--nats-monitor", "http://"+testkit.FreeAddress(t)).want(t, "sync", "problem", "does not answer", "http port")
	url, monitor = startPlain(t, server.Options{JetStream: true, SyncAlways: true, JetStreamMaxStore: 2 << 20})
	doctor(t, "-s", url, "--nats-monitor", monitor+"/").want(t, "sync", "ok", "syncs each write")
	fill(t, jetStream(t, connect(t, url)), 1800<<10)
	doctor(t, "-s", url, "--nats-monitor", monitor).want(t, "sync", "warning", "of the 2 MiB", "max_file_store")

	leaf(t, "doctor", "-s", "nats://"+testkit.FreeAddress(t), "--mysql", "nonsense").want(t, 2, "--mysql")
	leaf(t, "doctor", "-s", "http://127.0.0.1").want(t, 2, "nats://")
}

// fill stores so many bytes.
func fill(t *testing.T, js jetstream.JetStream, bytes int) {
	t.Helper()
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHERS", Subjects: []string{"others"}})
	must(t, err)
	for range bytes >> 10 {
		_, err := js.Publish(t.Context(), "others", make([]byte, 1000))
		must(t, err)
	}
}

// The check names each permission that the user lacks. An account that is nearly full gets a warning.
func TestDoctorFindsMissingPermissions(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	writeFile(t, conf, `accounts { A: { jetstream: { max_file: 2MB }, users: [
		{ user: all, password: p }
		{ user: caller, password: p, permissions: { publish: [ "leaf.segment.>", "$JS.API.STREAM.INFO.*", "$SRV.>" ], subscribe: "_INBOX.>" } }
		{ user: nobody, password: p, permissions: { publish: [ "leaf.segment.>", "$JS.API.INFO" ], subscribe: "_INBOX.>" } }
	] } }`)
	url := newNATSFrom(t, conf).ClientURL()
	all := []string{"-s", url, "--user", "all", "--password", "p"}
	d := doctor(t, all...)
	d.want(t, "permissions", "ok")
	d.want(t, "jetstream", "ok", "has stored 0 MiB, and has limits")
	d = doctor(t, "-s", url, "--user", "caller", "--password", "p", "--timeout", "1s")
	d.want(t, "permissions", "problem", "subscribe to leaf.segment.leaf_doctor", "subscribe to leaf.snowflake", "publish to leaf.internal.leaf_doctor",
		"publish to leaf.events.", "publish to $KV.LEAF_TAGS.leaf_doctor", "publish to $KV.LEAF_KEYS.leaf_doctor", "publish to $JS.API.STREAM.CREATE.leaf_doctor", "as the user of the generators")
	for _, c := range d.Checks {
		if c.Check == "permissions" && (strings.Contains(c.Found, "_INBOX") || strings.Contains(c.Found, "publish to leaf.segment")) {
			t.Errorf("it may do that: %s", c.Found)
		}
	}
	d = doctor(t, "-s", url, "--user", "nobody", "--password", "p", "--timeout", "1s")
	for _, stream := range []string{"KV_LEAF", "KV_LEAF_TAGS", "KV_LEAF_KEYS", "LEAF_EVENTS"} {
		d.want(t, "streams", "problem", "stream "+stream+" cannot be read", "STREAM.INFO."+stream+" of", "as the user of the generators")
	}
	fill(t, jetStream(t, connect(t, url, nats.UserInfo("all", "p"))), 1800<<10)
	doctor(t, all...).want(t, "jetstream", "warning", "the 2 MiB that it may store", "max_file")
}

// reconfigure changes a stream, as an operator does.
func reconfigure(t *testing.T, js jetstream.JetStream, name string, change func(*jetstream.StreamConfig)) {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	must(t, err)
	c := s.CachedInfo().Config
	change(&c)
	_, err = js.UpdateStream(t.Context(), c)
	must(t, err)
}

// Streams that somebody changed, generators that lack something or are lost, clocks that differ.
func TestDoctorFindsWhatIsWrongWithGenerators(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order")
	second := serve(t, t.TempDir(), "-s", g.url)
	nc := connect(t, g.url)
	js := jetStream(t, nc)
	reconfigure(t, js, "KV_LEAF_WORKERS", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })
	reconfigure(t, js, "KV_LEAF_TAGS", func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 10 })
	eventConsumer(t, js, bus.EventSubjects)
	reconfigure(t, js, bus.EventStream, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = -1 })
	reconfigure(t, js, "KV_LEAF", func(c *jetstream.StreamConfig) { c.MaxMsgSize, c.MaxMsgs, c.Discard = 100, 1, jetstream.DiscardNew })
	for i := range 10 {
		_ = ask(t, nc, bus.SubjectTagsCreate, fmt.Sprintf(`{"tag":"t%d"}`, i)) // until it is full
	}
	second.kill()
	testkit.Eventually(t, "the lost generator", func() bool { return stateOf(t, bus.NewClient(nc)).Counts.Lost == 1 })
	clock, err := nc.Subscribe(bus.SubjectClock, func(m *nats.Msg) {
		answer, _ := json.Marshal(bus.ClockReply{Node: "fast", Worker: 9, UnixMS: time.Now().Add(5 * time.Second).UnixMilli()})
		_ = m.Respond(answer)
	})
	must(t, err)
	d := doctor(t, "-s", g.url)
	d.want(t, "streams", "problem", "LEAF_WORKERS has an age limit (1h0m0s)", "nats stream edit")
	d.want(t, "streams", "warning", "KV_LEAF_TAGS has", "takes no writes when it is full")
	d.want(t, "streams", "problem", "KV_LEAF takes no message of more than 100 bytes", "--max-msg-size=-1")
	d.want(t, "streams", "warning", "KV_LEAF has ", "of 1 messages, and takes no writes when it is full", "--max-msgs=-1")
	d.want(t, "streams", "warning", "no limit per subject", "nats stream edit LEAF_EVENTS")
	d.want(t, "generators", "problem", second.node+" is lost", "leaf workers release")
	d.want(t, "clocks", "problem", "fast is ", "ahead", "may refuse to start", "NTP")
	must(t, clock.Unsubscribe())
	doctor(t, "-s", g.url).want(t, "clocks", "ok", g.node)

	// The one that is left cannot write.
	breakStore(t, js, true)
	ready := func() bool {
		_ = ask(t, nc, "leaf.segment.order", "100000")
		return stateOf(t, bus.NewClient(nc)).Ready
	}
	testkit.Eventually(t, "a generator that is not ready", func() bool { return !ready() })
	doctor(t, "-s", g.url).want(t, "generators", "problem", g.node+" lacks its store", "runbook")
}

// In a cluster a server that is gone is named, and so is a stream that only one server keeps.
func TestDoctorFindsMissingReplicas(t *testing.T) {
	t.Parallel()
	c := newThreeServers(t)
	g := serve(t, t.TempDir(), "-s", c.url(0), "--tag", "order")
	eventConsumer(t, jetStream(t, connect(t, g.url)), bus.EventSubjects)
	testkit.Eventually(t, "current copies", func() bool {
		r := leaf(t, "doctor", "--json", "-s", g.url)
		return strings.Contains(r.stdout, "each copy is current")
	})
	js := jetStream(t, connect(t, g.url))
	s, err := js.Stream(t.Context(), bus.EventStream)
	must(t, err)
	cfg := s.CachedInfo().Config
	cfg.Replicas = 1
	_, err = js.UpdateStream(t.Context(), cfg)
	must(t, err)
	doctor(t, "-s", g.url).want(t, "streams", "warning", "LEAF_EVENTS is kept by 1 server", "--replicas 3")
	c.servers[2].Close()
	testkit.Eventually(t, "a copy that is missing", func() bool {
		r := leaf(t, "doctor", "--json", "-s", g.url)
		return strings.Contains(r.stdout, "replica s2 is")
	})
	doctor(t, "-s", g.url).want(t, "streams", "problem", "stream KV_LEAF_TAGS: replica s2 is", "start the server")
}

// Databases, ZooKeepers and folders that are unfit, or belong to another installation.
func TestDoctorFindsWhatIsWrongWithPlaces(t *testing.T) {
	t.Parallel()
	db := mariadb.NewDatabase(t)
	empty := embed(t)
	doctor(t, "-s", empty.url, "--mysql", db).want(t, "mysql", "problem", "leaf migrate")
	doctor(t, "-s", empty.url, "--mysql", db).want(t, "installation", "problem", "a generator with --mysql is refused")
	theirs, p := mariadb.NewDatabase(t), newPlace(t, zookeeper.Hosts(t))
	first := embed(t, p.flags("--mysql", theirs, "--tag", "order")...)
	nc := connect(t, first.url)
	granted(t, ask(t, nc, "leaf.segment.order", ""))
	snowflake(t, nc)
	d := doctor(t, p.flags("-s", empty.url, "--mysql", theirs, "--data-dir", first.folder)...)
	d.want(t, "mysql", "problem", "belongs to installation", "--mysql")
	d.want(t, "zookeeper", "problem", "belongs to installation", "--zookeeper-name")
	d.want(t, "folder", "problem", "belongs to installation", "--data-dir")
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "")
	doctor(t, "-s", empty.url, "--data-dir", file).want(t, "folder", "problem", "is a file")

	args := func(dsn string) []string { return []string{"-s", first.url, "--mysql", dsn} }
	doctor(t, args(account(t, theirs, "pw", "SELECT, UPDATE"))...).want(t, "mysql", "problem", "the account may not INSERT on leaf_alloc")
	doctor(t, args(through(t, theirs, testkit.FreeAddress(t)))...).want(t, "mysql", "problem", "connection refused", "see that the database runs there")
	doctor(t, "-s", first.url, "--zookeeper", testkit.FreeAddress(t), "--timeout", "2s").want(t, "zookeeper", "problem", "not connected", "more than half of its servers")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connects, and never answers
	must(t, err)
	t.Cleanup(func() { silent.Close() })
	mute := silent.Addr().String()
	d = doctor(t, "-s", first.url, "--timeout", "1s", "--mysql", through(t, theirs, mute), "--zookeeper", mute)
	d.want(t, "mysql", "problem", "did not answer in time", "see that the database runs there")
	d.want(t, "zookeeper", "problem", "not connected", "more than half of its servers")
	doctor(t, "-s", "nats://"+mute, "--timeout", "1s").want(t, "nats", "problem", "timeout", "no firewall is between")
	doctor(t, p.flags("-s", "nats://"+testkit.FreeAddress(t))...).want(t, "zookeeper", "ok", "belongs to installation")
	execute(t, openDB(t, theirs), "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('bad tag', 1, 10)")
	doctor(t, args(theirs)...).want(t, "mysql", "warning", "1 row of leaf_alloc", "bad tag", "leaf migrate --check")
}

// A database that syncs too little, and one that was set back below what was claimed.
func TestDoctorFindsWhatADatabaseForgot(t *testing.T) {
	t.Parallel()
	s := newNATS(t)
	_, dsn := newServer(t)
	db := openDB(t, dsn)
	g := serve(t, t.TempDir(), "-s", s.ClientURL(), "--mysql", dsn, "--tag", "order", "--tag", "idle")
	nc := connect(t, g.url)
	for range 3 {
		granted(t, ask(t, nc, "leaf.segment.order", "1500"))
	}
	granted(t, ask(t, nc, "leaf.segment.idle", ""))
	g.stop()
	args := []string{"-s", s.ClientURL(), "--mysql", dsn}
	doctor(t, args...).want(t, "ledger", "ok", "2 tags compared")
	execute(t, db, "UPDATE leaf_alloc SET max_id = 2 WHERE biz_tag = 'order'", "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
	d := doctor(t, args...)
	d.want(t, "ledger", "problem", "max_id of 1 tag", "order (max_id 2, claimed below ", "runbook")
	d.want(t, "mysql", "warning", "innodb_flush_log_at_trx_commit 2", "set innodb_flush_log_at_trx_commit to 1")
	if strings.Contains(fmt.Sprint(d), "idle (max_id") {
		t.Error("a tag is named that was not set back")
	}
}

// Another program reserves in the table: max_id is above all claims until leaf tag advance claims what is below. A tag at its limit is
// not named, although its last range in the table ends above the limit.
func TestDoctorFindsAnotherProgram(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	db := openDB(t, dsn)
	g := embed(t, "--mysql", dsn, "--tag", "order:100", "--tag", "capped:100")
	leafOK(t, "tag", "set", "capped", "--limit", "150", "-s", g.url)
	leafOK(t, "get", "capped", "-n", "100", "-s", g.url)
	leafOK(t, "get", "capped", "-n", "50", "-s", g.url)
	leafOK(t, "get", "order", "-s", g.url)
	if at := maxIDOf(t, db, "capped"); at <= 151 {
		t.Errorf("max_id of the tag with a limit is %d", at)
	}
	args := []string{"-s", g.url, "--mysql", dsn}
	doctor(t, args...).want(t, "ledger", "ok", "2 tags compared")
	execute(t, db, "UPDATE leaf_alloc SET max_id = max_id + 1000 WHERE biz_tag = 'order'")
	d := doctor(t, args...)
	d.want(t, "ledger", "warning", "max_id of 1 tag is above", "order (max_id 1101, claimed below 101)", "--shared-table", "docs/moving.md")
	if out, want := leafOK(t, "tag", "advance", "order", "-s", g.url), "order 1101 unchanged, claimed 101-1100 in the ledger\n"; out != want {
		t.Errorf("it prints %q, want %q", out, want)
	}
	if out, want := leafOK(t, "tag", "advance", "order", "-s", g.url), "order 1101 unchanged\n"; out != want {
		t.Errorf("once more it prints %q, want %q", out, want)
	}
	doctor(t, args...).want(t, "ledger", "ok", "2 tags compared")
	execute(t, db, "UPDATE leaf_alloc SET max_id = 101 WHERE biz_tag = 'order'")
	if id, err := strconv.Atoi(strings.TrimSpace(leafOK(t, "get", "order", "-s", g.url))); err != nil || id < 1101 {
		t.Errorf("after the database forgot the range of the other program, a generator gives %d, %v", id, err)
	}
}
