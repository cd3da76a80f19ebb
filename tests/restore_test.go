package tests

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// folderOf is where the server keeps a bucket.
func (s *natsServer) folderOf(bucket string) string {
	return filepath.Join(s.cfg.StoreDir, "jetstream", "$G", "streams", "KV_"+bucket)
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// buffersOf returns what each generator holds of a tag, by node, when so many
// have answered.
func buffersOf(t *testing.T, nc *nats.Conn, tag string, nodes int) map[string]bus.Buffer {
	t.Helper()
	var found map[string]bus.Buffer
	testkit.Eventually(t, "the buffers of all generators", func() bool {
		found = askBuffers(t, nc, tag, nodes)
		return len(found) == nodes
	})
	return found
}

// askBuffers asks once: who is not connected just then does not answer.
func askBuffers(t *testing.T, nc *nats.Conn, tag string, nodes int) map[string]bus.Buffer {
	t.Helper()
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer answers.Unsubscribe()
	if err := nc.PublishRequest(bus.SubjectBuffers, inbox, []byte(`{"prefix":"`+tag+`"}`)); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bus.Buffer)
	for range nodes {
		msg, err := answers.NextMsg(time.Second)
		if errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		page := reply[bus.BuffersPage](t, msg)
		for _, b := range page.Buffers {
			if b.Tag == tag {
				found[page.Node] = b
			}
		}
	}
	return found
}

// lastEvent waits for an event and returns the body of the last one on its
// subject.
func lastEvent[T any](t *testing.T, js jetstream.JetStream, subject string) T {
	t.Helper()
	var body []byte
	testkit.Eventually(t, "an event on "+subject, func() bool {
		stream, err := js.Stream(t.Context(), bus.EventStream)
		if err != nil {
			return false
		}
		msg, err := stream.GetLastMsgForSubject(t.Context(), subject)
		if err != nil {
			return false
		}
		body = msg.Data
		return true
	})
	return parse[T](t, body)
}

// eventConsumer reads the events on a subject from the first on. The stream is
// made after the generator is ready: events never hold it up.
func eventConsumer(t *testing.T, js jetstream.JetStream, subject string) (consumer jetstream.Consumer) {
	t.Helper()
	testkit.Eventually(t, "the event stream", func() bool {
		var err error
		consumer, err = js.OrderedConsumer(t.Context(), bus.EventStream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Fatal(err)
		}
		return err == nil
	})
	return consumer
}

// eventsOn waits until a subject has so many events, and returns their bodies.
func eventsOn[T any](t *testing.T, js jetstream.JetStream, subject string, count int) []T {
	t.Helper()
	consumer := eventConsumer(t, js, subject)
	var found []T
	for range count {
		msg, err := consumer.Next(jetstream.FetchMaxWait(patience))
		if err != nil {
			t.Fatalf("%d of %d events came on %s: %v", len(found), count, subject, err)
		}
		found = append(found, parse[T](t, msg.Data()))
	}
	return found
}

// The bucket of the tags is restored from an older copy while generators serve. They know how far they and their
// peers were, so they move max_id up again and service goes on.
func TestBucketRestoredFromAnOlderCopy(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	url := server.ClientURL()
	generators := map[string]*generator{}
	for _, node := range []string{"one", "two", "three"} {
		// A small largest step: memory is soon used up.
		generators[node] = serve(t, t.TempDir(), "-s", url, "--tag", "order:1000", "--max-step", "2000", "--node", node)
	}
	l := startLoad(t, loadConfig{
		tag: "order", callers: 4, maxBatch: 500, patience: patience / 80, mayGiveUp: true,
	}, url, url)
	nc := connect(t, url)

	l.more(1000)
	backup := filepath.Join(t.TempDir(), "backup")
	server.Close()
	copyFolder(t, server.folderOf(bus.BucketTags), backup)
	atBackup := l.highest.Load()
	server.start()
	states(t, bus.NewClient(nc), len(generators)) // all are back

	l.more(1000)
	// One dies, and is started again on the restored bucket when the others have served from it.
	generators["three"].kill()
	server.Close()
	copyFolder(t, backup, server.folderOf(bus.BucketTags))
	highest := l.highest.Load()
	server.start()
	if highest < atBackup+20_000 {
		t.Fatalf("%d at the backup and %d at the restore: the store did not go back by enough", atBackup, highest)
	}
	noticed(t, nc, "order")
	generators["three"] = generators["three"].again(t, "--max-step", "2000")
	testkit.Eventually(t, "IDs of every generator", func() bool {
		l.checkIDs()
		served := 0
		for _, b := range askBuffers(t, nc, "order", len(generators)) {
			if b.Taken > 0 && b.State != "regressed" {
				served++
			}
		}
		return served == len(generators)
	})
	ahead(t, l, 20_000)
	l.report()
	l.agrees(url)
	for _, g := range generators {
		g.stop()
	}
}

// All generators are stopped, the bucket is restored from an older copy, and the generator that starts then has an
// empty folder. How far the tag was stands in the event stream alone: one command reads it there.
func TestBucketRestoredUnderNewGenerators(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	url := server.ClientURL()
	old := serve(t, t.TempDir(), "-s", url, "--tag", "order:1000", "--max-step", "1000")
	l := startLoad(t, loadConfig{tag: "order", callers: 4, maxBatch: 500, patience: patience / 80, mayGiveUp: true}, url)
	l.more(200)
	backup := filepath.Join(t.TempDir(), "backup")
	server.Close()
	copyFolder(t, server.folderOf(bus.BucketTags), backup)
	server.start()
	ahead(t, l, 100_000)
	l.stop()
	old.stop() // all its events are in the stream
	server.Close()
	copyFolder(t, backup, server.folderOf(bus.BucketTags))
	server.start()

	serve(t, t.TempDir(), "-s", url, "--max-step", "1000")
	forgot(t, l, url)
	t.Log(leafOK(t, "tag", "advance", "--all", "-s", url))
	l.agrees(url)
	if id := takeOne(t, client(t, url), "order"); id <= l.highest.Load() {
		t.Errorf("ID %d, and %d was handed out before", id, l.highest.Load())
	}
}

// forgot checks that an audit finds what JetStream forgot: IDs of the load that were reported, and are claimed no more.
func forgot(t *testing.T, l *load, url string) {
	t.Helper()
	report := runAudit(t, url, audit.Options{Taken: &l.taken})
	if kinds := kindsOf(report); kinds[bus.Unclaimed] == 0 || kinds[bus.TakenUnclaimed] == 0 || len(kinds) != 2 {
		t.Errorf("before the tags are advanced an audit finds %v: %+v", kinds, report.Contradictions)
	}
}

// The folder of an embedded server is set back to an older copy, and the generator's marks are not. Service goes on
// above all that was handed out.
func TestEmbeddedServerSetBack(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*generator){"stopped": (*generator).stop, "killed": func(g *generator) { g.kill() }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := embed(t, "--tag", "order:100", "--tag", "idle:100", "--max-step", "500")
			url := g.url
			takeOne(t, client(t, url), "idle")
			l := startLoad(t, hasty("order"), url, url)
			l.more(100)
			g.stop()
			folder, backup := filepath.Join(g.folder, "nats"), filepath.Join(t.TempDir(), "backup")
			copyFolder(t, folder, backup)
			g = g.again(t, "--max-step", "500")
			ahead(t, l, 20_000)
			stop(g)
			copyFolder(t, backup, folder)
			g = g.again(t, "--max-step", "500")
			ahead(t, l, 20_000)
			noticed(t, connect(t, url), "order")
			nc := connect(t, url)
			for _, tag := range []string{"order", "idle"} { // one alert each: it had reserved both before they were asked for
				subject := "leaf.events.alert.segment.regressed." + tag
				if alerts := countEvents(t, nc, subject); len(alerts) > 1 || alerts[g.node] > 1 {
					t.Errorf("alerts on %s: %v, want one", subject, alerts)
				}
			}
			lastEvent[episode](t, jetStream(t, nc), "leaf.events.info.segment.recovered.order")
			l.report() // the time that the server was away is in it
			l.agrees(url)
			g.stop()
		})
	}
}

// The ledger alone is restored from an older copy. One command claims again all that the database has reserved since,
// so that the database may forget it.
func TestLedgerRestoredFromAnOlderCopy(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	url := server.ClientURL()
	dsn := mariadb.NewDatabase(t)
	old := join(t, url, dsn, []string{"one"}, "--tag", "order:100", "--tag", "idle:100", "--max-step", "500")["one"]
	c := client(t, url)
	takeOne(t, c, "idle")
	l := startLoad(t, hasty("order"), url)
	l.more(200)
	old.kill()
	backup := filepath.Join(t.TempDir(), "backup")
	server.Close()
	copyFolder(t, server.folderOf(bus.BucketLedger), backup)
	server.start()
	old = old.again(t, "--mysql", dsn, "--node", "one", "--max-step", "500")
	ahead(t, l, 20_000)
	l.stop()
	old.stop()
	server.Close()
	copyFolder(t, backup, server.folderOf(bus.BucketLedger))
	server.start()
	nc := connect(t, url)
	if end := claimedEnd(t, jetStream(t, nc), "order"); end > l.highest.Load() {
		t.Fatalf("the ledger ends at %d, and %d was handed out: it did not go back", end, l.highest.Load())
	}

	next := join(t, url, dsn, []string{"next"}, "--max-step", "500")["next"] // with an empty folder
	forgot(t, l, url)
	t.Log(leafOK(t, "tag", "advance", "--all", "-s", url))
	l.agrees(url)
	if end := claimedEnd(t, jetStream(t, nc), "order"); end <= l.highest.Load() {
		t.Errorf("the ledger ends at %d, and %d was handed out", end, l.highest.Load())
	}
	next.stop()
	execute(t, openDB(t, dsn), "UPDATE leaf_alloc SET max_id = 1")
	join(t, url, dsn, []string{"last"}, "--max-step", "500")
	if id := takeOne(t, c, "order"); id <= l.highest.Load() {
		t.Errorf("ID %d, and %d was handed out before", id, l.highest.Load())
	}
}
