package tests

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// changeWorker changes a worker's record by hand, or makes one.
func changeWorker(t *testing.T, js jetstream.JetStream, worker int64, change func(record map[string]any)) {
	t.Helper()
	record := map[string]any{"worker": worker, "node": "gone", "incarnation": "made by hand"}
	kv, err := js.KeyValue(t.Context(), bus.BucketWorkers)
	if err != nil {
		t.Fatal(err)
	}
	if text := workerText(t, js, worker); text != "" {
		record = parse[map[string]any](t, []byte(text))
	}
	change(record)
	text, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), fmt.Sprint(worker), text); err != nil {
		t.Fatal(err)
	}
}

// workerText is a worker's record as it is kept; "" if there is none.
func workerText(t *testing.T, js jetstream.JetStream, worker int64) string {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), bus.BucketWorkers)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(t.Context(), fmt.Sprint(worker))
	if err != nil {
		return ""
	}
	return string(entry.Value())
}

// silent makes a record one of a holder that has not been heard for a while and
// has reserved much.
func silent(record map[string]any) {
	now := time.Now()
	record["acquired_ms"] = now.Add(-time.Hour).UnixMilli()
	record["reported_ms"] = now.Add(-11 * time.Second).UnixMilli()
	record["reserved_until_ms"] = now.Add(24 * time.Hour).UnixMilli()
}

// The worker of a generator that was killed is released, once it is known to be
// silent and somebody confirms that it is stopped. Another takes it over above all
// that the former holder issued, and that one comes back with another worker.
func TestReleaseCommand(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	url := server.ClientURL()
	serve(t, t.TempDir(), "-s", url, "--node", "calm")
	dead := serve(t, t.TempDir(), "-s", url, "--node", "dead")
	nc := connect(t, url)
	js := jetStream(t, nc)
	c := bus.NewClient(nc)
	workers := workersOf(t, c, "calm", "dead")
	n := workers["dead"]
	l := startLoad(t, loadConfig{callers: 2, maxBatch: 500, patience: patience / 80, mayGiveUp: true}, url)
	l.more(300)
	release := func(worker int64, args ...string) result {
		t.Helper()
		return leaf(t, append([]string{"workers", "release", fmt.Sprint(worker), "-s", url}, args...)...)
	}
	const yes = "--yes"

	release(workers["calm"], yes).want(t, 1, "is held by calm, which is running: stop it first")
	release(n, yes).want(t, 1, "is held by dead, which is running: stop it first")
	free := (n + 1) % 1024
	if free == workers["calm"] {
		free = (n + 2) % 1024
	}
	release(free, yes).want(t, 1, "any generator may take it")
	release(n+2000, yes).want(t, 1, "there is no worker")
	dead.kill()
	testkit.Eventually(t, "it to be known as gone", func() bool { return holders(t, c)[n] == "" })

	// As if it had just reported, and its clock were a little ahead.
	changeWorker(t, js, n, func(r map[string]any) { r["reported_ms"] = time.Now().Add(5 * time.Second).UnixMilli() })
	before := workerText(t, js, n)
	release(n, yes).want(t, 1, "dead, which holds worker", "may be running", "try again at 20", "conflict")

	changeWorker(t, js, n, silent)
	silence := workerText(t, js, n)
	r := release(n)
	r.want(t, 2, "--yes", "dead is stopped", "The clock of dead", time.UnixMilli(workerRecord(t, js, n).ReservedUntilMS).Format(time.RFC3339))
	if r.stdout != "" {
		t.Errorf("without a confirmation, stdout says %q", r.stdout)
	}
	if now := workerText(t, js, n); now != silence || before == silence {
		t.Fatalf("without a confirmation the record was %s and is %s", silence, now)
	}
	begin := time.Now()
	r = release(n, yes)
	r.want(t, 0, "dead is stopped")
	end := time.UnixMilli(workerRecord(t, js, n).ReservedUntilMS)
	const margin = 10 * time.Second
	if end.Before(begin.Add(margin-time.Millisecond)) || end.After(time.Now().Add(margin)) {
		t.Errorf("released at %v, it is reserved until %v", begin, end)
	}
	if want := fmt.Sprintf("worker %d is free from %s on\n", n, end.Format(time.RFC3339)); r.stdout != want {
		t.Errorf("stdout says %q, want %q", r.stdout, want)
	}
	incarnation := regexp.MustCompile(`"incarnation":"[^"]+"`)
	released := workerText(t, js, n)
	if incarnation.FindString(released) == incarnation.FindString(silence) || workerRecord(t, js, n).Node != "dead" {
		t.Errorf("the record was %s and is %s", silence, released)
	}
	want := workerEvent{Node: "calm", Worker: n, Registry: "kv", ReservedUntilMS: end.UnixMilli(), Holder: "dead"}
	if e := lastEvent[workerEvent](t, js, fmt.Sprint("leaf.events.info.worker.released.", n)); e != want {
		t.Errorf("the event is %+v, want %+v", e, want)
	}
	again := leaf(t, "workers", "release", fmt.Sprint(n), yes, "--json", "-s", url)
	again.want(t, 0)
	if w := parse[bus.Worker](t, []byte(again.stdout)); w.Worker != n || w.Node != "dead" || w.ReservedUntil.UnixMilli() != end.UnixMilli() {
		t.Errorf("released again: %+v; it was reserved until %v", w, end)
	}

	serve(t, t.TempDir(), "-s", url, "--node", "fresh", "--worker-id", fmt.Sprint(n))
	workersOf(t, c, "fresh")
	dead.again(t)
	now := workersOf(t, c, "calm", "dead", "fresh")
	if now["fresh"] != n || now["dead"] == n || now["calm"] != workers["calm"] {
		t.Errorf("the workers were %v and are %v", workers, now)
	}
	testkit.Eventually(t, "an ID of the worker", func() bool {
		p := partsOf(snowflake(t, nc))
		if p.worker == n && p.ms < end.UnixMilli() {
			t.Fatalf("%+v was issued before %v", p, end)
		}
		return p.worker == n
	})
	release(n, yes).want(t, 1, "is held by fresh, which is running")
	l.more(500)
	l.stop() // and no ID came twice
}

// A worker whose reservation is over needs no confirmation.
func TestReleaseFreeWorker(t *testing.T) {
	t.Parallel()
	g := embed(t, "--worker-id", "5")
	js := jetStream(t, connect(t, g.url))
	const end = 1_700_000_000_000
	changeWorker(t, js, 900, func(r map[string]any) { r["reserved_until_ms"] = end })
	before := workerText(t, js, 900)
	text := leafOK(t, "workers", "release", "900", "-s", g.url)
	if want := "worker 900 is free already, since " + time.UnixMilli(end).Format(time.RFC3339) + "\n"; text != want {
		t.Errorf("stdout says %q, want %q", text, want)
	}
	nc := connect(t, g.url)
	granted(t, ask(t, nc, "leaf.admin.workers.release", `{"worker":900,"node":"gone","reserved_until":"2023-11-14T22:13:20Z"}`))
	if after := workerText(t, js, 900); after != before {
		t.Errorf("the record was %s and is %s", before, after)
	}
}

// What is asked for over NATS must name the record that is meant.
func TestBadReleases(t *testing.T) {
	t.Parallel()
	g := embed(t, "--worker-id", "5", "--node", "one")
	nc := connect(t, g.url)
	js := jetStream(t, nc)
	changeWorker(t, js, 900, silent)
	kept := workerText(t, js, 900)
	until := time.UnixMilli(workerRecord(t, js, 900).ReservedUntilMS).UTC().Format(time.RFC3339Nano)
	for body, want := range map[string]bus.Reason{
		``:                             bus.BadRequest,
		`{}`:                           bus.BadRequest,
		`900`:                          bus.BadRequest,
		`{"worker":9}`:                 bus.BadRequest,
		`{"worker":900,"node":"gone"}`: bus.BadRequest,
		`{"worker":900,"reserved_until":"` + until + `"}`:                                                 bus.BadRequest,
		`{"worker":900,"node":"gone","reserved_until":"tomorrow"}`:                                        bus.BadRequest,
		`{"worker":900,"node":"gone","reserved_until":"` + until + `","yes":true}`:                        bus.BadRequest,
		`{"worker":901,"node":"gone","reserved_until":"` + until + `"}`:                                   bus.BadRequest,
		`{"worker":900,"node":"else","reserved_until":"` + until + `"}`:                                   bus.Conflict,
		`{"worker":900,"node":"gone","reserved_until":"2026-01-02T03:04:05Z"}`:                            bus.Conflict,
		`{"worker":900,"node":"gone","reserved_until":"` + until + `","reported":"2026-01-02T03:04:05Z"}`: bus.Conflict,
		`{"worker":5,"node":"one","reserved_until":"` + until + `"}`:                                      bus.Conflict,
	} {
		code := 400
		if want == bus.Conflict {
			code = 409
		}
		refused(t, ask(t, nc, "leaf.admin.workers.release", body), code, want)
	}
	if now := workerText(t, js, 900); now != kept {
		t.Errorf("the record was %s and is %s", kept, now)
	}
	w := reply[bus.Worker](t, ask(t, nc, "leaf.admin.workers.release", `{"worker":900,"node":"gone","reserved_until":"`+until+`"}`))
	if w.Worker != 900 || w.Node != "gone" || w.Running || time.Until(w.ReservedUntil) > 10*time.Second {
		t.Errorf("released: %+v", w)
	}
}

// The command is found and explained where a user looks for it.
func TestHelpForRelease(t *testing.T) {
	t.Parallel()
	help := leafOK(t, "workers", "release", "--help")
	_, examples, ok := strings.Cut(help, "Examples:\n")
	if !ok || !strings.Contains(examples, "leaf workers release 7") || !strings.Contains(help, "--yes") || !strings.Contains(help, "stopped") {
		t.Errorf("leaf workers release --help:\n%s", help)
	}
	if all := leafOK(t, "workers", "--help"); !strings.Contains(all, "\n  release ") {
		t.Errorf("leaf workers --help does not list it:\n%s", all)
	}
	if found := leafOK(t, "__complete", "workers", "rel"); !strings.Contains(found, "release\t") {
		t.Errorf("rel is completed to %q", found)
	}
	leaf(t, "workers", "release").want(t, 2, "arg")
	leaf(t, "workers", "release", "five").want(t, 2, "five")
	leaf(t, "workers", "release", "5", "--yes", "-s", newNATS(t).ClientURL(), "--timeout", "300ms").want(t, 3, "no generator")
}
