package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/leafbus/leafbus/tests/chaos/programs"
	"github.com/leafbus/leafbus/tests/kit"
)

// process is a program of the installation that a supervisor keeps running, as systemd would: a generator or a NATS
// server. Its methods are safe for concurrent use.
type process struct {
	w       *world
	name    string
	folder  string // its working folder
	command func() *exec.Cmd
	control *programs.Control // its clock and its disk

	mu      sync.Mutex
	current *kit.Process // nil before the first start
	wanted  bool         // it should run
	frozen  bool
	starts  int
	since   time.Time // the last start
	number  int       // of the process of the last start, by the system
}

// start starts the process if it does not run. From now on it is started again whenever it ends.
func (p *process) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = true
	if p.current == nil || p.current.Ended() {
		p.launchLocked()
	}
}

func (p *process) launchLocked() {
	p.starts++
	p.since = time.Now()
	cmd := p.command()
	cmd.Dir = p.folder
	cmd.Env = append(environment(), p.control.Env())
	current, err := kit.Launch(kit.Program{Name: p.name, Command: cmd, Log: p.log()})
	if err != nil {
		p.w.fail(fmt.Errorf("starting %s: %w", p.name, err))
		return
	}
	p.current, p.number = current, cmd.Process.Pid
	p.w.note("%s started", p.name)
}

// environment is that of this program without settings of leaf and nats.
func environment() (env []string) {
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "LEAF_") && !strings.HasPrefix(entry, "NATS_") {
			env = append(env, entry)
		}
	}
	return env
}

// log is the file with what the last start wrote.
func (p *process) log() string { return filepath.Join(p.folder, fmt.Sprintf("log-%d", p.starts)) }

// supervise starts a process that ended by itself once more, a second later.
func (p *process) supervise() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil || !p.current.Ended() || !p.wanted {
		return
	}
	if text := crash(p.log()); text != "" {
		p.w.violated("crash", "", fmt.Sprintf("%s crashed: %s (log: %s)", p.name, text, p.log()))
	}
	if time.Since(p.since) > time.Second {
		log, _ := os.ReadFile(p.log()) // crash has just read it
		p.w.note("%s had ended by itself: %s", p.name, lastLine(string(log)))
		p.launchLocked()
	}
}

// crash is the line of a log that says that the program crashed; empty: it did not.
func crash(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(text)) {
		for _, begin := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
			if strings.HasPrefix(line, begin) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// kill ends the process at once, as kill -9 does. It stays away until start.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted, p.frozen = false, false
	if p.current != nil {
		p.current.Close()
	}
	p.w.note("%s killed", p.name)
}

// stop sends SIGTERM and waits for the end.
func (p *process) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = false
	if p.current == nil || p.current.Ended() {
		return
	}
	began := time.Now()
	switch err := p.current.Stop(); {
	case err != nil && time.Since(began) >= kit.Patience:
		p.w.violated("stop", "", fmt.Sprintf("%s does not end within %v after SIGTERM: %v", p.name, kit.Patience, err))
	case err != nil && !p.current.Ended(): // otherwise it was about to give up, for example at its start
		p.w.fail(fmt.Errorf("SIGTERM: %w", err))
	}
	p.w.note("%s stopped by SIGTERM", p.name)
}

// freeze stops all threads of the process until thaw. It reports whether there was one.
func (p *process) freeze() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil || p.current.Ended() || p.current.Freeze() != nil {
		return false
	}
	p.frozen = true
	p.w.note("%s frozen", p.name)
	return true
}

func (p *process) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen {
		_ = p.current.Thaw() // it may have been killed
		p.frozen = false
		p.w.note("%s thawed", p.name)
	}
}

// pid is the number of the process; it is not ok if the process does not run.
func (p *process) pid() (number int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.number, p.current != nil && !p.current.Ended() && !p.frozen
}

// age is the time since the last start.
func (p *process) age() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.since)
}

// alive is whether there is a process, even if it stands still.
func (p *process) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current != nil && !p.current.Ended()
}

func (p *process) isWanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wanted
}

// machine is a generator with its place in the network: it reaches each other part through a link of its own.
type machine struct {
	*process
	i      int
	server *server   // the NATS server that it embeds; nil: it joins those of others
	http   string    // host:port, for those who look
	door   *kit.Link // to http, for callers
	data   string    // its data folder
	args   []string
	nats   []*kit.Link // to each NATS server, by its number; none if it embeds one
	db, zk *kit.Link   // nil: there is none
}

// links are all links between the machine and the rest, those of its embedded server too: those that it opens, and
// those that others open to it.
func (m *machine) links() (out, in []*kit.Link) {
	in, out = append(in, m.door), append(out, m.nats...)
	for _, l := range []*kit.Link{m.db, m.zk} {
		if l != nil {
			out = append(out, l)
		}
	}
	if m.server != nil {
		o, i := m.server.links()
		out, in = append(out, o...), append(in, i...)
	}
	return out, in
}

// readyz is what the machine says of its readiness: the status, 0 if it does not answer, and the body.
func (m *machine) readyz() (status int, body string) { return get("http://" + m.http + "/readyz") }

func (m *machine) ready() bool { status, _ := m.readyz(); return status == http.StatusOK }

var looking = &http.Client{Timeout: time.Second}

func get(url string) (status int, body string) {
	answer, err := looking.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}
