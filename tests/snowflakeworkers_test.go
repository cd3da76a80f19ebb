package tests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// workersPage is the reply of leaf.admin.workers.list.
type workersPage struct {
	Registry string `json:"registry"`
	Workers  []struct {
		Worker        int64     `json:"worker"`
		Node          string    `json:"node"`
		Running       bool      `json:"running"`
		Acquired      time.Time `json:"acquired"`
		Reported      time.Time `json:"reported"`
		ReservedUntil time.Time `json:"reserved_until"`
	} `json:"workers"`
	Next   int64           `json:"next"`
	Layout json.RawMessage `json:"layout"`
}

// The workers and who holds them are listed in pages.
func TestListOfWorkers(t *testing.T) {
	t.Parallel()
	begin := time.Now().Add(-time.Millisecond)
	g := embed(t, "--worker-id", "2", "--node", "n2")
	serve(t, t.TempDir(), "-s", g.url, "--worker-id", "5", "--node", "n5")
	last := serve(t, t.TempDir(), "-s", g.url, "--worker-id", "1000", "--node", "n1000", "--worker-grace", "1h")
	nc := connect(t, g.url)
	list := func(body string) workersPage {
		t.Helper()
		return reply[workersPage](t, ask(t, nc, "leaf.admin.workers.list", body))
	}
	text := func(p workersPage) string {
		var all []string
		for _, w := range p.Workers {
			all = append(all, fmt.Sprint(w.Worker))
		}
		return fmt.Sprintf("%s, next %d", strings.Join(all, " "), p.Next)
	}
	// One that starts slowly has its worker after it is ready.
	var all workersPage
	testkit.Eventually(t, "all to be known as running", func() bool {
		all = list("")
		running := 0
		for _, w := range all.Workers {
			if w.Running {
				running++
			}
		}
		return running == 3
	})
	for body, want := range map[string]string{
		``:                     "2 5 1000, next 0",
		`{}`:                   "2 5 1000, next 0",
		`{"limit":2}`:          "2 5, next 1000",
		`{"from":3,"limit":1}`: "5, next 1000",
		`{"from":1000}`:        "1000, next 0",
		`{"from":1001}`:        ", next 0",
	} {
		if got := text(list(body)); got != want {
			t.Errorf("%s is answered with %s, want %s", body, got, want)
		}
	}
	for _, body := range []string{`{"limit":1001}`, `{"limit":-1}`, `{"worker":2}`, `{"from":"2"}`, `[]`, `2`} {
		refused(t, ask(t, nc, "leaf.admin.workers.list", body), 400, bus.BadRequest)
	}
	for _, w := range all.Workers {
		if ahead := time.Until(w.ReservedUntil); w.Node != fmt.Sprint("n", w.Worker) || ahead < 10*time.Second || ahead > time.Minute ||
			w.Acquired.Before(begin) || w.Reported.Before(w.Acquired) || w.Reported.After(time.Now()) {
			t.Errorf("%+v; want a minute reserved", w)
		}
	}
	if all.Registry != "kv" {
		t.Errorf("the registry is %q", all.Registry)
	}
	last.stop()
	testkit.Eventually(t, "the one that stopped to be away", func() bool { return !list("").Workers[2].Running })
	if w := list("").Workers[2]; w.Node != "n1000" || time.Until(w.ReservedUntil) > time.Minute {
		t.Errorf("after a stop: %+v; want no longer reserved than it was", w)
	}
}

// workerEvent is the body of the events of workers.
type workerEvent struct {
	Node            string `json:"node"`
	Worker          int64  `json:"worker"`
	Registry        string `json:"registry"`
	FromMS          int64  `json:"from_ms"`
	AfterMS         int64  `json:"after_ms"`
	UntilMS         int64  `json:"until_ms"`
	ReservedUntilMS int64  `json:"reserved_until_ms"`
	Holder          string `json:"holder"`
}

// A worker that is taken and given up is told as CloudEvents.
func TestEventsOfAWorker(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	g := serve(t, t.TempDir(), "-s", server.ClientURL(), "--worker-id", "9", "--worker-grace", "5s")
	nc := connect(t, server.ClientURL())
	js := jetStream(t, nc)
	id := snowflake(t, nc)
	acquired := parse[workerEvent](t, event(t, js, g.node, "leaf.events.info.worker.acquired.9", 1).Data())
	if e := acquired; e.Node != g.node || e.Worker != 9 || e.Registry != "kv" || e.ReservedUntilMS <= partsOf(id).ms {
		t.Errorf("acquired: %+v", e)
	}
	g.stop()
	stopped := time.Now().UnixMilli()
	released := parse[workerEvent](t, event(t, js, g.node, "leaf.events.info.worker.released.9", 1).Data())
	if e := released; e.Node != g.node || e.Worker != 9 || e.Registry != "kv" || e.ReservedUntilMS <= partsOf(id).ms ||
		e.ReservedUntilMS > stopped+5000 || e.ReservedUntilMS >= acquired.ReservedUntilMS {
		t.Errorf("released: %+v, at %d", e, stopped)
	}
	if r := workerRecord(t, js, 9); r.ReservedUntilMS != released.ReservedUntilMS || r.Node != g.node {
		t.Errorf("the record is %+v", r)
	}
}
