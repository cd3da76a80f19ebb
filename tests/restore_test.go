package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
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

// The bucket of the tags is restored from an older copy while generators serve.
// Each of them hands out what it had reserved before, and then refuses, until
// an operator has moved max_id above all that was handed out.
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
		expected: []bus.Reason{bus.StoreRegressed},
	}, url, url)
	nc := connect(t, url)
	js := jetStream(t, nc)

	l.more(1000)
	backup := filepath.Join(t.TempDir(), "backup")
	server.Close()
	copyFolder(t, server.folderOf(bus.BucketTags), backup)
	atBackup := l.highest.Load()
	server.start()
	states(t, bus.NewClient(nc), len(generators)) // all are back

	l.more(1000)
	// One dies, and is started again on the restored bucket: it must know too.
	generators["three"].kill()
	server.Close()
	copyFolder(t, backup, server.folderOf(bus.BucketTags))
	highest := l.highest.Load()
	server.start()
	if highest < atBackup+20_000 {
		t.Fatalf("%d at the backup and %d at the restore: the store did not go back by enough", atBackup, highest)
	}
	generators["three"] = generators["three"].again(t, "--max-step", "2000")

	testkit.Eventually(t, "every generator to refuse", func() bool {
		l.check()
		refusing := 0
		for _, b := range buffersOf(t, nc, "order", len(generators)) {
			if b.State == "regressed" && b.Left == 0 {
				refusing++
			}
		}
		return refusing == len(generators)
	})
	for range 50 {
		refused(t, ask(t, nc, "leaf.segment.order", ""), 503, bus.StoreRegressed)
	}
	if l.refusals(bus.StoreRegressed) == 0 {
		t.Error("no caller was refused")
	}
	if _, err := l.checker.Check(); err != nil {
		t.Fatal(err)
	}

	type regressed struct {
		Node      string
		Tag       string
		Got, Seen string
	}
	seen := l.highest.Load()
	nodes := make(map[string]bool)
	for _, e := range eventsOn[regressed](t, js, "leaf.events.alert.segment.regressed.order", len(generators)) {
		got, err1 := strconv.ParseInt(e.Got, 10, 64)
		end, err2 := strconv.ParseInt(e.Seen, 10, 64)
		if err1 != nil || err2 != nil || got >= end || e.Tag != "order" || nodes[e.Node] {
			t.Errorf("alert %+v (one for each generator is wanted)", e)
		}
		nodes[e.Node] = true
		seen = max(seen, end)
	}

	// What the error tells the operator to do.
	maxID := strconv.FormatInt(seen, 10)
	leafOK(t, "tag", "set", "order", "--max-id", maxID, "-s", url)
	if id := takeOne(t, client(t, url), "order"); id < seen {
		t.Errorf("ID %d after max_id was moved to %d", id, seen)
	}
	l.more(1000)
	eventsOn[struct{ Node, Tag, Episode string }](t, js, "leaf.events.info.segment.recovered.order", len(generators))
	for node, b := range buffersOf(t, nc, "order", len(generators)) {
		if b.State == "regressed" {
			t.Errorf("%s still refuses: %+v", node, b)
		}
	}
	l.stop()
	for _, g := range generators {
		g.stop()
	}
}

// A generator is away while another one hands out IDs, and comes back when the
// bucket was restored from before. It never heard of those IDs; that they were
// handed out stands in the event stream alone.
func TestBucketRestoredWhileAGeneratorWasAway(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	url := server.ClientURL()
	there := serve(t, t.TempDir(), "-s", url, "--tag", "order:1000", "--max-step", "1000", "--node", "there")
	away := serve(t, t.TempDir(), "-s", url, "--max-step", "1000", "--node", "away")
	// Callers ask all the time, so that it is asked at once when it comes back.
	l := startLoad(t, loadConfig{
		tag: "order", callers: 4, maxBatch: 500, patience: patience / 80, mayGiveUp: true,
		expected: []bus.Reason{bus.StoreRegressed},
	}, url, url)
	nc := connect(t, url)
	l.more(1000)
	backup := filepath.Join(t.TempDir(), "backup")
	server.Close()
	copyFolder(t, server.folderOf(bus.BucketTags), backup)

	away.freeze() // it has lost its connection, and makes no new one
	server.start()
	states(t, bus.NewClient(nc), 1)
	for i := range 200 { // the stream has a long history
		tag := fmt.Sprintf("t%d", i)
		granted(t, ask(t, nc, bus.SubjectTagsCreate, `{"tag":"`+tag+`","step":1}`))
		granted(t, ask(t, nc, "leaf.segment."+tag, ""))
	}
	start := l.highest.Load()
	testkit.Eventually(t, "the other one to be far ahead", func() bool { return l.highest.Load() > start+100_000 })
	lastEvent[map[string]any](t, jetStream(t, nc), "leaf.events.info.segment.refill.order")
	there.stop() // all its events are in the stream
	server.Close()
	copyFolder(t, backup, server.folderOf(bus.BucketTags))
	server.start()
	away.signal(syscall.SIGCONT)

	testkit.Eventually(t, "the one that was away to refuse", func() bool {
		l.check()
		if _, err := l.checker.Check(); err != nil {
			t.Fatal(err)
		}
		b := buffersOf(t, nc, "order", 1)["away"]
		return b.State == "regressed" && b.Left == 0
	})
	l.stop()
}
