//go:build drills

package drills

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// machines are three, each with a NATS server of its own. First only one of them runs, with a server alone.
type machines struct {
	t          *testing.T
	program    string // nats-server; empty: each generator has a server in its process
	flags      []string
	dirs       [3]string
	urls       [3]string
	routes     [3]string
	servers    [3]*kit.Process
	generators [3]*kit.Generator
}

func newMachines(t *testing.T, program string, flags ...string) *machines {
	m := &machines{t: t, program: program, flags: flags}
	for i := range m.dirs {
		m.dirs[i], m.urls[i], m.routes[i] = t.TempDir(), "nats://"+testkit.FreeAddress(t), "nats://"+testkit.FreeAddress(t)
	}
	return m
}

// start starts a machine. It returns when the generator has written its ready line.
func (m *machines) start(i int, clustered bool) {
	m.t.Helper()
	config := filepath.Join(m.dirs[i], "nats.conf")
	text := fmt.Sprintf("server_name: s%d\nlisten: %q\njetstream { store_dir: store }\n", i, strings.TrimPrefix(m.urls[i], "nats://"))
	if clustered {
		text += fmt.Sprintf("cluster { name: c, listen: %q, routes: [%s] }\n",
			strings.TrimPrefix(m.routes[i], "nats://"), strings.Join(m.routes[:], ", "))
	}
	writeFile(m.t, config, text)
	args := append([]string{"--node", fmt.Sprint("n", i)}, m.flags...)
	if m.program == "" {
		args = append(args, "--nats-config", config)
	} else {
		cmd := exec.Command(m.program, "-c", config)
		cmd.Dir = m.dirs[i]
		m.servers[i] = kit.Start(m.t, cmd)
		testkit.Eventually(m.t, "a server that accepts connections", func() bool {
			nc, err := nats.Connect(m.urls[i])
			if err == nil {
				nc.Close()
			}
			return err == nil
		})
		args = append(args, "-s", m.urls[i])
	}
	m.generators[i] = kit.Begin(m.t, m.dirs[i], args...)
}

// One machine becomes three by the steps of docs/operate.md, and most callers ask until its end. No ID comes twice.
func TestDrillGrow(t *testing.T) {
	const order, invoice, gift = "order", "invoice", "gift"
	for _, c := range []struct {
		name          string
		joined, mysql bool
	}{
		{name: "embedded"}, {name: "embedded, MySQL", mysql: true}, {name: "joined", joined: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			program, flags := "", []string{"--tag", order + ":100"}
			if c.joined {
				program = buildNATS(t, embeddedVersion(t))
			}
			if c.mysql {
				flags = append(flags, "--mysql", kit.NewDatabase(t))
			}
			m := newMachines(t, program, flags...)
			url := m.urls[0]
			m.start(0, false)
			m.generators[0].AwaitReady("segments", "snowflakes")
			kit.LeafOK(t, "tag", "add", invoice, "--order", "strict", "-s", url)
			kit.LeafOK(t, "tag", "add", gift, "--opaque", "--step", "100", "-s", url)
			asked := callers.Config{Tags: []string{order, gift, callers.Snowflakes}, Batch: 20}
			ordered := callers.Config{Tags: []string{invoice}, Strict: []string{invoice}}
			before, strict := callers.New(t, asked).Raw(url).Take(url), callers.New(t, ordered).Raw(url)
			before.More(1000)
			strict.Stop() // only the record knows how far it is
			backup := filepath.Join(t.TempDir(), "leaf.backup")
			kit.LeafOK(t, "backup", backup, "-s", url)
			before.More(1000)
			before.Stop()
			kit.Must(t, m.generators[0].Stop())
			if c.joined {
				kit.Must(t, m.servers[0].Signal(os.Interrupt))
				kit.Finish(t, m.servers[0])
			}

			for i := range m.dirs {
				m.start(i, true)
			}
			nc := kit.Connect(t, url)
			if c.joined { // the stream of another program hides what the single server had
				js, err := jetstream.New(nc)
				kit.Must(t, err)
				testkit.Eventually(t, "a stream in the cluster", func() bool {
					_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}})
					return err == nil
				})
			}
			testkit.Eventually(t, "all wait for the record", func() bool {
				waiting := 0
				for _, s := range kit.States(nc) {
					if strings.Contains(s.Reasons["store"], "installation") {
						waiting++
					}
				}
				return waiting == len(m.dirs)
			})
			if said := kit.LeafOK(t, "restore", backup, "-s", strings.Join(m.urls[:], ",")); !strings.Contains(said, "unchanged: 0") {
				t.Errorf("there were records before the restore: %s", said)
			}
			asked.MayFail, ordered.MayFail = callers.AnyFailure, callers.AnyFailure
			after, strictAfter := callers.New(t, asked), callers.New(t, ordered)
			strictAfter.Floor(invoice, strict.Highest(invoice)+1)
			for i, g := range m.generators {
				g.AwaitReady("segments", "snowflakes")
				after.Raw(m.urls[i]).Take(m.urls[i])
				strictAfter.Raw(m.urls[i])
			}
			after.More(3000)
			strictAfter.More(300)
			after.Stop()
			strictAfter.Stop()
			for _, tag := range asked.Tags {
				if err := callers.Unique(tag, before, after); err != nil {
					t.Error(err)
				}
			}
			if r := kit.Leaf(t, "audit", "-s", url); r.Status != 0 {
				t.Errorf("leaf audit: %s%s", r.Stdout, r.Stderr)
			}
		})
	}
}
