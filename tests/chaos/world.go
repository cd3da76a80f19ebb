package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/chaos/judge"
	"github.com/leafbus/leafbus/tests/chaos/programs"
	"github.com/leafbus/leafbus/tests/kit"
)

// config is what a run was asked for.
type config struct {
	seed    uint64
	length  time.Duration
	faults  []string        // names; empty: all that fit and are not known to break a promise
	store   string          // jetstream, mysql
	servers string          // embedded, joined
	known   bool            // run the faults that are known to break a promise
	broken  string          // name of a breakage of the product, or all; empty: none
	edits   []programs.Edit // of that breakage
	json    string          // file for the report
	keep    bool            // keep the folders
}

// world is an installation, all that it needs, and all that was seen of it.
type world struct {
	*harness
	cfg              config
	leaf, natsServer string // paths of the programs
	began            time.Time

	servers  []*server
	machines []*machine
	db       *kit.Pair      // nil: the tags are in JetStream
	zk       *kit.ZooKeeper // nil: the workers are there, too

	nc     *nats.Conn // of those who look
	js     jetstream.JetStream
	client *bus.Client
	admin  *admin.Client
	judge  *judge.Judge
	crowd  *crowd
	watch  *watch

	episodes *episodes
	progress io.Writer

	// Of the main goroutine:
	table     table
	samples   samples
	inspected time.Time         // the last time
	numbers   map[bus.ID]bus.ID // of some IDs of the opaque tag; in a round of the strike that reveals some

	another   sync.Once // starts another installation
	otherNATS string    // its URL

	mu        sync.Mutex
	busy      map[*process]bool // those that a strike has
	notes     []note
	guests    []*guest
	violation *judge.Violation // the first

	// Of the end:
	err    error // why the run ended early
	lasted time.Duration
}

// note is something that the runner did or saw.
type note struct {
	at   time.Time
	text string
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return // the end of the run is no fault
	}
	w.notes = append(w.notes, note{time.Now(), fmt.Sprintf(format, args...)})
}

// writeNotes writes all that the runner did and saw into a file.
func (w *world) writeNotes(path string) {
	var text strings.Builder
	for _, n := range w.notes {
		fmt.Fprintf(&text, "%s  %s\n", n.at.Format("15:04:05.000"), n.text)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
	}
}

var errViolated = errors.New("a promise is broken")

// violated ends the run with a broken promise, and the calling goroutine, as Fatal does.
func (w *world) violated(check, tag, text string) {
	w.report(&judge.Violation{Check: check, Tag: tag, Text: text, At: time.Now()})
	runtime.Goexit()
}

// report ends the run. The first violation counts, and none after the run: processes end then.
func (w *world) report(v *judge.Violation) {
	w.mu.Lock()
	if w.violation == nil && w.ctx.Err() == nil {
		w.violation = v
	}
	w.mu.Unlock()
	w.fail(errViolated)
}

// address is a host:port where nothing listens.
func (w *world) address() string { return testkit.FreeAddress(w) }

// newProcess returns a process in a folder of its own.
func (w *world) newProcess(name string) *process {
	folder := filepath.Join(w.dir, name)
	kit.Must(w, os.MkdirAll(folder, 0o700))
	control, err := programs.NewControl(filepath.Join(w.dir, name+".control"))
	kit.Must(w, err)
	p := &process{w: w, name: name, folder: folder, control: control}
	w.Cleanup(func() {
		p.kill()
		_ = control.Close() // the folder goes with it
	})
	return p
}

// newMachines makes the generators, and starts none. Those of embedded servers come first; one more joins them. An
// installation that begins with one machine has one server, without a cluster.
func (w *world) newMachines(begins int) {
	for i := range machines {
		m := &machine{process: w.newProcess(fmt.Sprint("n", i)), i: i, http: w.address()}
		m.door = kit.NewLink(w, m.http)
		m.data = filepath.Join(m.folder, "leaf-data")
		m.args = []string{
			"serve", "--node", m.name, "--http", m.http, "--events-max-bytes", "50000000", "--tag", order + ":200",
			"--tag", stock + ":20", "--max-step", "5000", "--tag-refresh", "2s",
		}
		if w.cfg.servers == "embedded" && i < len(w.servers) {
			m.server = w.servers[i]
			m.server.process = m.process
			m.args = append(m.args, "--nats-config", m.server.writeConfig(begins > 1 || i > 0))
		} else {
			for _, s := range w.servers {
				m.nats = append(m.nats, kit.NewLink(w, s.addr))
			}
			var urls []string
			for j := range m.nats { // each begins with another server
				urls = append(urls, "nats://"+m.nats[(i+j)%len(m.nats)].Addr())
			}
			m.args = append(m.args, "-s", strings.Join(urls, ","))
		}
		if w.db != nil {
			m.db = kit.NewLink(w, w.db.Link.Addr())
			user := []string{"root", account}[i%2] // root may write to a server that is read-only
			m.args = append(m.args, "--mysql", fmt.Sprintf("%s@tcp(%s)/%s", user, m.db.Addr(), database))
		}
		if w.zk != nil {
			m.zk = kit.NewLink(w, w.zk.Addr())
			m.args = append(m.args, "--zookeeper", m.zk.Addr())
		}
		m.command = func() *exec.Cmd { return exec.Command(w.leaf, m.args...) }
		w.machines = append(w.machines, m)
	}
}

// Names on both database servers.
const (
	database = "leaf"
	account  = "leaf" // without rights of administration
)

// machines is how many generators an installation has.
const machines = 4

// begin starts the installation with its first machines, and waits until it serves.
func (w *world) begin(begins int) {
	if w.cfg.store == "mysql" {
		w.db = kit.NewPair(w, database)
		kit.SQL(w, w.db.Primary().DSN(""), "CREATE USER IF NOT EXISTS "+account, // a replica may have it already
			"GRANT ALL ON "+database+".* TO "+account)
		w.zk = kit.NewZooKeeper(w)
	}
	w.newServers(begins)
	w.newMachines(begins)
	for _, s := range w.servers[:min(begins, len(w.servers))] {
		if w.cfg.servers == "joined" {
			s.start()
		}
	}
	for _, m := range w.machines[:begins] {
		m.start()
	}
	w.connect()
	go w.supervise()
	w.awaitReady()
}

// connect connects those who look, past all links.
func (w *world) connect() {
	w.nc = kit.Connect(w, w.urls(), nats.RetryOnFailedConnect(true), nats.PingInterval(time.Second),
		nats.MaxPingsOutstanding(2)) // its server may be frozen
	js, err := jetstream.New(w.nc)
	kit.Must(w, err)
	w.js, w.client, w.admin = js, bus.NewClient(w.nc), admin.NewClient(w.nc)
}

// urls are those of NATS for those who look.
func (w *world) urls() string {
	var urls []string
	for _, s := range w.servers {
		urls = append(urls, "nats://"+s.addr)
	}
	return strings.Join(urls, ",")
}

// doors are the URLs of NATS for callers and operators.
func (w *world) doors() string {
	var urls []string
	for _, s := range w.servers {
		urls = append(urls, "nats://"+s.door.Addr())
	}
	return strings.Join(urls, ",")
}

func (w *world) supervise() {
	for tick := time.NewTicker(200 * time.Millisecond); w.ctx.Err() == nil; <-tick.C {
		for _, p := range w.processes() {
			p.supervise()
		}
	}
}

// processes are the generators and the NATS servers.
func (w *world) processes() (all []*process) {
	for _, m := range w.machines {
		all = append(all, m.process)
	}
	for _, s := range w.servers {
		if w.cfg.servers == "joined" {
			all = append(all, s.process)
		}
	}
	return all
}

// readyWithin is how long everything may take to be ready after the last fault.
const readyWithin = time.Minute

// awaitReady waits until all machines that should run are ready. The run ends with a violation if they are not.
func (w *world) awaitReady() {
	var waiting []string
	if !w.await(readyWithin, 100*time.Millisecond, func() bool {
		waiting = nil
		for _, m := range w.machines {
			if status, body := m.readyz(); m.isWanted() && status != http.StatusOK {
				waiting = append(waiting, fmt.Sprintf("%s: %d %s", m.name, status, strings.TrimSpace(body)))
			}
		}
		return len(waiting) == 0
	}) {
		w.violated("ready", "", fmt.Sprintf("%v after the end of all faults not everything is ready: %s", readyWithin,
			strings.Join(waiting, "; ")))
	}
}

// await asks until something holds, and reports whether it did in time. It ends the goroutine if the run ends.
func (w *world) await(within, every time.Duration, holds func() bool) bool {
	for end := time.Now().Add(within); !holds(); w.pause(every) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// pause waits. It ends the goroutine if the run has ended meanwhile.
func (w *world) pause(d time.Duration) {
	select {
	case <-w.ctx.Done():
		runtime.Goexit()
	case <-time.After(d):
	}
}

// operator runs a leaf command, as an operator does who knows all NATS servers.
func (w *world) operator(args ...string) kit.Result {
	sent := time.Now()
	r := w.runLeaf(time.Minute, append(args, "-s", w.doors())...)
	w.note("leaf %s: exit status %d after %v: %s", strings.Join(args, " "), r.Status,
		time.Since(sent).Round(time.Millisecond), strings.TrimSpace(firstLine(r.Stderr)))
	return r
}

// runLeaf runs a leaf command without settings of this machine. If it does not end in time, its status is below 0.
func (w *world) runLeaf(within time.Duration, args ...string) kit.Result {
	ctx, cancel := context.WithTimeout(w.ctx, within)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.leaf, args...)
	cmd.Dir, cmd.Env = w.dir, append(environment(), "XDG_CONFIG_HOME="+w.dir)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	r := kit.Result{Status: cmd.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errs.String()}
	if err != nil && r.Status < 0 {
		r.Stderr += err.Error()
	}
	return r
}

func firstLine(text string) string { line, _, _ := strings.Cut(text, "\n"); return line }
