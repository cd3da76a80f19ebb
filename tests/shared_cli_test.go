package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What tests of others still use of the files that tests/cli replaced.

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

// refillEvent is the message of a refill event.
func refillEvent(tag, node string, first, last int64) *nats.Msg {
	msg := nats.NewMsg("leaf.events.info.segment.refill." + tag)
	for name, value := range map[string]string{
		"ce-specversion": "1.0", "ce-id": nats.NewInbox(), "ce-source": "/leaf/" + node, "ce-type": "leaf.segment.refill", "ce-subject": tag,
		"ce-time": time.Now().UTC().Format(time.RFC3339Nano), "ce-datacontenttype": "application/json",
	} {
		msg.Header.Set(name, value)
	}
	msg.Data = fmt.Appendf(nil, `{"node":%q,"tag":%q,"first":"%d","last":"%d","step":10,"cause":"demand","elapsed_ms":0.1}`, node, tag, first, last)
	return msg
}

// forgeRefill publishes a refill event that no generator has published.
func forgeRefill(t *testing.T, js jetstream.JetStream, tag, node string, first, last int64) {
	t.Helper()
	_, err := js.PublishMsg(t.Context(), refillEvent(tag, node, first, last))
	must(t, err)
}

// withHTTP starts a generator with a NATS server of its own and an HTTP face on a free port.
func withHTTP(t *testing.T, args ...string) *generator {
	t.Helper()
	return embed(t, append([]string{"--http", "127.0.0.1:0"}, args...)...)
}

// page is an answer over HTTP.
type page struct {
	status int
	header http.Header
	body   string
}

// fetch asks over HTTP as a client would that has no surprises: it follows no redirect.
func fetch(t *testing.T, method, url string, header ...string) page {
	t.Helper()
	return fetchBy(t, http.DefaultTransport, method, url, header...)
}

func fetchBy(t *testing.T, by http.RoundTripper, method, url string, header ...string) page {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	must(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := by.RoundTrip(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must(t, err)
	return page{answer.StatusCode, answer.Header, string(body)}
}

// untilUnavailable asks for an ID until it is known that the database is away:
// the first requests may have waited for it in vain.
func untilUnavailable(t *testing.T, nc *nats.Conn, tag string) {
	t.Helper()
	testkit.Eventually(t, "the word that the store is away", func() bool {
		msg := ask(t, nc, "leaf.segment."+tag, "")
		if len(msg.Header) == 0 {
			return false // from memory
		}
		e := refusal(t, msg)
		switch {
		case e.Code == 504 && e.Reason == string(bus.TimedOut):
			return false
		case e.Code != 503 || e.Reason != string(bus.StoreUnavailable) || !strings.Contains(e.Message, "MySQL"):
			t.Fatalf("answered %+v, want 503 store_unavailable that names MySQL", e)
		}
		return true
	})
}

// everyEvent is all that the stream of events has by now.
func everyEvent(t *testing.T, js jetstream.JetStream) string {
	t.Helper()
	stream, err := js.Stream(t.Context(), bus.EventStream)
	must(t, err)
	var all strings.Builder
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		msg, err := stream.GetMsg(t.Context(), seq)
		must(t, err)
		fmt.Fprintln(&all, msg.Subject, msg.Header, string(msg.Data))
	}
	return all.String()
}

// takeMany asks for so many IDs, one at a time, whoever answers.
func takeMany(t *testing.T, nc *nats.Conn, tag string, count int, checker *allocatortest.Checker) (lowest, highest int64) {
	t.Helper()
	for range count {
		msg := ask(t, nc, "leaf.segment."+tag, "")
		granted(t, msg)
		ranges, err := bus.ParseReply(msg.Data)
		must(t, err)
		checker.Add(ranges...)
		if id := ranges[0].First; lowest == 0 || id < lowest {
			lowest = id
		}
		highest = max(highest, ranges[0].First)
	}
	return lowest, highest
}

// usedBy asks until each of so many generators has handed out IDs of a tag,
// and returns the highest ID.
func usedBy(t *testing.T, nc *nats.Conn, tag string, nodes int, checker *allocatortest.Checker) (highest int64) {
	t.Helper()
	testkit.Eventually(t, "all generators to hand out IDs of "+tag, func() bool {
		_, high := takeMany(t, nc, tag, 1, checker)
		highest = max(highest, high)
		used := 0
		for _, b := range askBuffers(t, nc, tag, nodes) {
			if b.Taken > 0 {
				used++
			}
		}
		return used == nodes
	})
	return highest
}

type refill struct {
	Node, Tag, Cause string
	First, Last      bus.ID
	Step             int64
	ElapsedMS        float64 `json:"elapsed_ms"`
}

// changingNATS is a NATS server that has JetStream at one time and none at another.
type changingNATS struct {
	t      *testing.T
	port   int
	folder string
	server *server.Server
}

func (n *changingNATS) stop() {
	if n.server != nil {
		n.server.Shutdown()
		n.server.WaitForShutdown()
	}
}

// begin starts the server, again at the same address if it runs, and returns its URL.
func (n *changingNATS) begin(jetStream bool) string {
	n.t.Helper()
	n.stop()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: n.port, NoLog: true, NoSigs: true, JetStream: jetStream, StoreDir: n.folder,
	})
	must(n.t, err)
	s.Start()
	n.server = s
	if !s.ReadyForConnections(patience) {
		n.t.Fatal("the NATS server is not ready")
	}
	return s.ClientURL()
}

func newChangingNATS(t *testing.T) *changingNATS {
	t.Helper()
	_, text, err := net.SplitHostPort(testkit.FreeAddress(t)) // no client's connection takes it while the server is away
	must(t, err)
	port, err := strconv.Atoi(text)
	must(t, err)
	n := &changingNATS{t: t, port: port, folder: t.TempDir()}
	t.Cleanup(func() { n.stop() })
	return n
}

func ownerOfDatabase(t *testing.T, dsn string) (id string) {
	t.Helper()
	must(t, openDB(t, dsn).QueryRowContext(t.Context(), "SELECT id FROM leaf_installation").Scan(&id))
	return id
}

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

// askAll sends a request that many may answer, and returns the first answers.
func askAll[T any](t *testing.T, nc *nats.Conn, subject string, count int) []T {
	t.Helper()
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer answers.Unsubscribe()
	if err := nc.PublishRequest(subject, inbox, nil); err != nil {
		t.Fatal(err)
	}
	var found []T
	for range count {
		msg, err := answers.NextMsg(patience)
		if err != nil {
			t.Fatalf("%d of %d answered on %s: %v", len(found), count, subject, err)
		}
		var v T
		if err := json.Unmarshal(msg.Data, &v); err != nil {
			t.Fatalf("%s: %v", msg.Data, err)
		}
		found = append(found, v)
	}
	if msg, err := answers.NextMsg(100 * time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("one more answer on %s: %v, %v", subject, msg, err)
	}
	return found
}

// parts are what a snowflake of the default layout is made of.
type parts struct{ ms, worker, sequence int64 }

func partsOf(id int64) parts {
	const epoch = 1288834974657
	return parts{id>>22 + epoch, id >> 12 & 1023, id & 4095}
}

// snowflakes asks for IDs and returns their ranges, which must be granted.
func snowflakes(t *testing.T, nc *nats.Conn, body string) []bus.Range {
	t.Helper()
	msg := ask(t, nc, "leaf.snowflake", body)
	granted(t, msg)
	ranges, err := bus.ParseReply(msg.Data)
	if err != nil {
		t.Fatal(err)
	}
	return ranges
}

// snowflake asks for one ID, as often as it takes.
func snowflake(t *testing.T, nc *nats.Conn) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ranges, err := bus.NewClient(nc).Snowflakes(ctx, 1)
	if err != nil {
		t.Fatalf("a snowflake: %v", err)
	}
	return ranges[0].First
}

// answers sends an empty request and returns all answers that come soon: how
// many there will be is not known.
func answers(t *testing.T, nc *nats.Conn, subject string) []*nats.Msg {
	t.Helper()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	if err := nc.PublishRequest(subject, inbox, nil); err != nil {
		t.Fatal(err)
	}
	var found []*nats.Msg
	for {
		msg, err := sub.NextMsg(200 * time.Millisecond)
		if errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, msg)
	}
}

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

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
