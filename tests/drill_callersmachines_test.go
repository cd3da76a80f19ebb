//go:build drills

package tests

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/testkit"
)

const machinesToken = "machines" // password and HTTP token

// machines are network namespaces with one generator each, on a bridge that the test is connected to.
type machines struct {
	t        *testing.T
	net      string // the first three numbers of all addresses
	name     string // of the bridge, and the beginning of those of namespaces
	folders  []string
	args     []string
	embedded bool
	running  []*process
}

// newMachines makes the network and starts no generator.
func newMachines(t *testing.T, folders ...string) *machines {
	t.Helper()
	n := rand.IntN(1 << 16)
	m := &machines{
		t: t, net: fmt.Sprintf("10.%d.%d", 64+n>>10, n&0xff), name: fmt.Sprintf("leaf%04x", n),
		folders: folders, running: make([]*process, len(folders)),
	}
	ip := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s: this drill needs the right to make network namespaces: run it as root on Linux", args, err, out)
		}
	}
	mac := func(host int) string { return fmt.Sprintf("02:00:00:00:00:%02x", host) }
	ip("link add " + m.name + " address " + mac(1) + " type bridge")
	t.Cleanup(func() { ip("link del " + m.name) })
	ip("addr add " + m.net + ".1/24 dev " + m.name)
	ip("link set " + m.name + " up")
	for i := range folders {
		space := m.space(i)
		ip("netns add " + space)
		t.Cleanup(func() { ip("netns del " + space) })
		ip("link add " + space + " type veth peer name eth0 address " + mac(11+i) + " netns " + space)
		ip("link set " + space + " master " + m.name)
		ip("link set " + space + " up")
		ip("-n " + space + " link set lo up")
		ip("-n " + space + " addr add " + m.host(i) + "/24 dev eth0")
		ip("-n " + space + " link set eth0 up")
		// All know each other, so that a silent one is not noticed because it answers no ARP.
		ip(fmt.Sprintf("neigh add %s lladdr %s dev %s nud permanent", m.host(i), mac(11+i), m.name))
		ip(fmt.Sprintf("-n %s neigh add %s.1 lladdr %s dev eth0 nud permanent", space, m.net, mac(1)))
		for j := range folders {
			if j != i {
				ip(fmt.Sprintf("-n %s neigh add %s lladdr %s dev eth0 nud permanent", space, m.host(j), mac(11+j)))
			}
		}
	}
	return m
}

func (m *machines) space(i int) string { return fmt.Sprint(m.name, "m", i) }
func (m *machines) host(i int) string  { return fmt.Sprint(m.net, ".", 11+i) }
func (m *machines) url(i int) string {
	return fmt.Sprintf("nats://leaf:%s@%s:4222", machinesToken, m.host(i))
}
func (m *machines) face(i int) string { return m.host(i) + ":8080" }

// faces are where all generators answer HTTP.
func (m *machines) faces() (urls []string) {
	for i := range m.folders {
		urls = append(urls, "http://"+m.face(i))
	}
	return urls
}

// silence drops all packets of a machine. No connection is closed, so nobody notices at once.
func (m *machines) silence(i int, on bool) {
	m.t.Helper()
	state := "up"
	if on {
		state = "down"
	}
	run(m.t, "ip", "link", "set", m.space(i), state)
}

// join makes the generators join a NATS server in the test's process.
func (m *machines) join() (url string) {
	m.t.Helper()
	server, err := embedded.Start(embedded.Config{
		Listen: m.net + ".1:4222", StoreDir: m.t.TempDir(), User: "leaf", Password: machinesToken, Log: testkit.Quiet,
	})
	must(m.t, err)
	m.t.Cleanup(server.Close)
	url = fmt.Sprintf("nats://leaf:%s@%s.1:4222", machinesToken, m.net)
	m.args = []string{"-s", url}
	return url
}

// embed gives each generator a NATS server, and makes these a cluster.
func (m *machines) embed() {
	m.t.Helper()
	m.embedded = true
	m.args = []string{"--user", "leaf", "--password", machinesToken, "--nats-config", "nats.conf", "--events-max-bytes", "2000000"}
}

// configure writes the configuration of the NATS server of a machine.
func (m *machines) configure(i int) {
	var routes []string
	for j := range m.folders {
		routes = append(routes, fmt.Sprintf("nats://route:%s@%s:6222", machinesToken, m.host(j)))
	}
	writeFile(m.t, filepath.Join(m.folders[i], "nats.conf"), fmt.Sprintf("server_name: s%d\nlisten: %q\n"+
		"cluster { name: leaf, listen: %q, authorization { user: route, password: %s }, routes: [%s] }\n",
		i, m.host(i)+":4222", m.host(i)+":6222", machinesToken, strings.Join(routes, ", ")))
}

// run starts a generator, or starts it again.
func (m *machines) run(i int) {
	m.t.Helper()
	if m.embedded {
		m.configure(i)
	}
	cmd := command(m.t, m.folders[i], nil, append([]string{
		"serve", "--node", fmt.Sprint("n", i), "--tag", "order:20000", "--http", m.face(i), "--http-token", machinesToken}, m.args...))
	wrapped := exec.Command("ip", append([]string{"netns", "exec", m.space(i)}, cmd.Args...)...)
	wrapped.Dir, wrapped.Env = cmd.Dir, cmd.Env
	m.running[i] = start(m.t, wrapped)
}

// runAll starts all generators and waits until they are ready.
func (m *machines) runAll() {
	m.t.Helper()
	for i := range m.folders {
		m.run(i)
	}
	for i := range m.folders {
		m.awaitReady(i)
	}
}

func (m *machines) awaitReady(i int) {
	m.t.Helper()
	testkit.Eventually(m.t, fmt.Sprintf("n%d to be ready", i), func() bool { return m.status(i) == http.StatusOK })
}

// status is what a generator answers to /readyz.
func (m *machines) status(i int) int {
	r, _ := http.NewRequest("GET", "http://"+m.face(i)+"/readyz", nil)
	r.Header.Set("Authorization", "Bearer "+machinesToken)
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

// One of two generators that joined a NATS is cut off for a minute. No connection is closed.
func TestDrillCallersSilent(t *testing.T) {
	m := newMachines(t, t.TempDir(), t.TempDir())
	url := m.join()
	m.runAll()
	calls := newCallers(t, "order")
	calls.token = machinesToken
	calls.ask("", url)
	calls.askHTTP(m.faces()...)
	calls.attack(time.Minute, func() { m.silence(0, true) }, func() { m.silence(0, false) })
	calls.stop(calm{within: hangNoticed})
}

// Each of these happens to one of three machines whose embedded servers form a cluster.
func TestDrillCallersEmbedded(t *testing.T) {
	var m *machines
	var disk *smallDisk
	for _, c := range []struct {
		name       string
		fault, end func()
		want       calm
	}{
		{name: "killed", fault: func() { m.running[0].kill() }, end: func() { m.run(0) }, want: calm{within: hangNoticed}},
		// Not within: hasty calls for snowflakes still fail when it thaws, while it waits for its worker to be confirmed.
		{
			name: "frozen", want: calm{longest: hangNoticed + plainDeadline},
			fault: func() { m.running[0].freeze() }, end: func() { m.running[0].signal(syscall.SIGCONT) },
		},
		{name: "silent", fault: func() { m.silence(0, true) }, end: func() { m.silence(0, false) }, want: calm{within: hangNoticed}},
		{
			name:  "disk full",
			fault: func() { disk.fill() },
			end: func() {
				disk.free()
				for m.running[0].cmd.ProcessState == nil && m.status(0) != http.StatusOK {
					time.Sleep(100 * time.Millisecond)
				}
				if m.status(0) != http.StatusOK {
					m.run(0) // as a supervisor does
				}
			},
		},
		{
			name: "replaced",
			fault: func() {
				m.running[0].kill()
				must(t, os.RemoveAll(filepath.Join(m.folders[0], "leaf-data")))
				m.run(0)
			},
			end: func() {},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk = newSmallDisk(t, "64m")
			m = newMachines(t, disk.dir, t.TempDir(), t.TempDir())
			m.embed()
			m.runAll()
			calls := newCallers(t, "order")
			calls.token = machinesToken
			calls.ask(", others", m.url(1), m.url(2))
			calls.ask(", victim", m.url(0), m.url(1), m.url(2))
			calls.askHTTP(m.faces()...)
			calls.attack(30*time.Second, c.fault, c.end)
			m.awaitReady(0)
			calls.stop(c.want)
		})
	}
}
