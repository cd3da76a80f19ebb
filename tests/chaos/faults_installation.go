package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/tests/kit"
)

// installationFaults are about which installation a machine belongs to, and about its data folder.
var installationFaults = []*fault{
	{
		name: "folder-emptied", weight: 1, servers: "joined",
		about: "a generator is killed, and started with an empty data folder",
		harms: []string{harmsFolders, harmsJetStream},
		strike: func(s *strike) {
			m := s.machine()
			m.kill()
			s.clearData(m.data)
			s.last(0, 5*time.Second)
			m.start()
		},
	},
	{
		name: "machine-replaced", weight: 1,
		about:   "a machine is replaced by one with an empty disk, as docs/operate.md says",
		servers: "embedded", alone: true,
		strike: func(s *strike) { s.replace(s.machine()) },
	},
	{
		name: "machines-replaced", weight: 1,
		about:   "two machines are replaced by ones with empty disks, one after the other",
		servers: "embedded", alone: true,
		strike: func(s *strike) {
			for _, i := range s.Perm(len(s.machines))[:2] {
				s.replace(s.machines[i])
			}
		},
	},
	{
		name: "server-replaced", weight: 1, servers: "joined", alone: true,
		about: "a NATS server is replaced by one with an empty disk",
		strike: func(s *strike) {
			s.awaitRedundant()
			o := s.world.servers[s.IntN(len(s.world.servers))]
			o.kill()
			kit.Must(s, os.RemoveAll(o.data))
			s.last(0, 5*time.Second)
			o.start()
			s.awaitRedundant()
		},
	},
	{
		name: "folder-restored", weight: 1,
		about: "an older copy of a generator's data folder is put back, over it or in its place",
		harms: []string{harmsFolders},
		strike: func(s *strike) {
			m, older := s.machine(), s.TempDir()
			s.copyData(m.data, older)
			s.last(2*time.Second, 8*time.Second)
			m.kill()
			if s.IntN(2) == 0 {
				s.clearData(m.data)
			}
			s.copyData(older, m.data)
			m.start()
		},
	},
	{
		name: "folder-copied", weight: 1,
		about: "a copy of a generator's data folder is started beside it; it may stand still meanwhile",
		harms: []string{harmsFolders},
		strike: func(s *strike) {
			m := s.machine()
			if s.IntN(2) == 0 && m.freeze() {
				s.pause(2 * time.Second) // less is excluded: docs/guarantees.md
			}
			c := s.newcomer("copy")
			s.copyData(m.data, filepath.Join(c.folder, "leaf-data"))
			c.serve(s)
			m.thaw()
			s.last(3*time.Second, 8*time.Second)
			c.stop()
		},
	},
	{
		name: "newcomer", weight: 1,
		about: "one more generator joins with an empty data folder, and leaves; it may be killed meanwhile",
		harms: []string{harmsJetStream},
		strike: func(s *strike) {
			c := s.newcomer("newcomer")
			c.serve(s)
			s.last(0, 5*time.Second)
			if s.IntN(2) == 0 {
				c.kill()
				c.serve(s)
				s.last(0, 5*time.Second)
			}
			c.stop()
		},
	},
	{
		name: "wrong-server", weight: 1, harms: []string{harmsFolders},
		about: "a generator is started with the NATS of another installation",
		strike: func(s *strike) {
			other, m := s.other(), s.machine()
			m.kill()
			s.refused("belongs to installation", s.serving(m.node(), m.data, other, database)...)
			m.start()
		},
	},
	{
		name: "wrong-database", weight: 1, store: "mysql",
		about: "a generator is started with the database of another installation",
		harms: []string{harmsFolders, harmsJetStream, harmsDatabase},
		strike: func(s *strike) {
			m := s.machine()
			m.kill()
			kit.SQL(s, s.db.Primary().DSN(""), "CREATE DATABASE IF NOT EXISTS other")
			s.refused("installation", s.serving(m.node(), m.data, s.doors(), "other")...)
			m.start()
		},
	},
	{
		name: "stolen-database", weight: 1, store: "mysql",
		about: "a new installation is started with the database of this one",
		harms: []string{harmsDatabase},
		strike: func(s *strike) {
			s.refused("installation", s.serving("thief", filepath.Join(s.TempDir(), "leaf-data"), s.other(), database)...)
		},
	},
	{
		name: "restore", weight: 1,
		about:   "all streams are lost, the events too, and a backup is restored by the steps of docs/operate.md",
		servers: "joined", alone: true,
		strike: func(s *strike) {
			s.restoreBySteps(func() { s.insist("backup", "--force", s.backupFile()) })
		},
	},
	{
		name: "restore-busy", weight: 1,
		about:   "all records are lost, and restored from a backup that was made while generators wrote a record",
		servers: "joined", alone: true,
		strike: func(s *strike) {
			s.restoreBySteps(func() {
				busy := s.crowd.busy(invoice)
				defer busy.close()
				s.insist("backup", "--force", s.backupFile())
			}, events.Stream)
		},
	},
	{
		name: "grow", weight: 1, alone: true, begins: 1,
		about: "one machine becomes three, as docs/operate.md says, and a fourth one joins",
		strike: func(s *strike) {
			m, o, file := s.machines[0], s.world.servers[0], filepath.Join(s.dir, "single.backup")
			s.last(time.Second, 3*time.Second)
			tags := s.crowd.tags()
			s.crowd.end()
			s.insist("backup", "--force", file)
			m.stop()
			if s.cfg.servers == "joined" {
				o.stop()
			}
			o.writeConfig(true)
			for _, o := range s.world.servers {
				if s.cfg.servers == "joined" {
					o.start()
				}
			}
			for _, m := range s.machines {
				m.start()
			}
			for _, m := range s.machines {
				s.must(m.name+" waits for the record", func() bool {
					_, body := m.readyz()
					return strings.Contains(body, "waiting for the record of installation") ||
						strings.Contains(body, "belongs to installation")
				})
			}
			s.insist("restore", file)
			s.awaitReady()
			for _, tag := range tags {
				s.crowd.add(tag, tag == invoice)
			}
		},
	},
}

// replace puts a machine with an empty disk in the place of one, when that is allowed.
func (s *strike) replace(m *machine) {
	s.awaitRedundant()
	m.kill()
	kit.Must(s, os.RemoveAll(m.data))
	m.start()
	s.awaitRedundant()
}

// guest is a generator that is not one of the machines.
type guest struct {
	*process
	http string
}

// newcomer returns a generator that is to join. It does not run yet.
func (s *strike) newcomer(name string) *guest {
	name = fmt.Sprintf("%s-%d", name, s.began.UnixMilli())
	g := &guest{process: s.newProcess(name), http: s.address()}
	args := append(s.serving(name, filepath.Join(g.folder, "leaf-data"), s.doors(), database), "--http", g.http)
	g.command = func() *exec.Cmd { return exec.Command(s.leaf, args...) }
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guests = append(s.guests, g)
	return g
}

// serve starts it and waits until it is ready.
func (g *guest) serve(s *strike) {
	g.start()
	s.must(g.name+" is ready", func() bool {
		status, _ := get("http://" + g.http + "/readyz")
		return status == http.StatusOK
	})
}

// serving is the arguments of a generator that joins a NATS.
func (s *strike) serving(node, data, nats, database string) []string {
	args := []string{
		"serve", "--node", node, "--data-dir", data, "-s", nats, "--tag", order + ":200", "--tag-refresh", "2s",
	}
	if s.db != nil {
		args = append(args, "--mysql", fmt.Sprintf("root@tcp(%s)/%s", s.db.Link.Addr(), database))
	}
	if s.zk != nil {
		args = append(args, "--zookeeper", s.zk.Addr())
	}
	return args
}

// other starts another installation until the end of the run, once, and returns its NATS.
func (s *strike) other() (url string) {
	s.another.Do(func() {
		p, addr := s.newProcess("other"), s.address()
		p.command = func() *exec.Cmd {
			return exec.Command(s.leaf, "serve", "--node", "other", "--http", "", "--listen", addr, "--tag", order)
		}
		p.start()
		s.otherNATS = "nats://" + addr
	})
	s.persist("another installation", func(context.Context) error {
		if r := s.runLeaf(10*time.Second, "get", order, "-s", s.otherNATS); r.Status != 0 {
			return errors.New(r.Stderr)
		}
		return nil
	})
	return s.otherNATS
}

// refused demands that a start ends by itself with exit status 1, and says why.
func (s *strike) refused(why string, args ...string) {
	r := s.runLeaf(30*time.Second, append(args, "--http", "")...)
	s.note("leaf %v: exit status %d: %s", args, r.Status, lastLine(r.Stderr))
	if r.Status != 1 || !strings.Contains(r.Stderr, why) {
		s.violated("installation", "", fmt.Sprintf("leaf %v was not refused because of its installation: exit status %d: %s",
			args, r.Status, r.Stderr))
	}
}

func (s *strike) backupFile() string { return filepath.Join(s.dir, "leaf.backup") }

// restoreBySteps does what docs/operate.md says about a backup and a restore of JetStream. Some streams stay.
func (s *strike) restoreBySteps(backUp func(), but ...string) {
	backUp()
	s.last(2*time.Second, 8*time.Second)
	tags := s.crowd.tags()
	s.crowd.end()
	for _, m := range s.machines {
		m.stop()
	}
	s.removeStreams(slices.DeleteFunc(s.streams(), func(name string) bool { return slices.Contains(but, name) })...)
	for _, m := range s.machines { // each one waits, and knows what its folder knows
		m.start()
	}
	s.must("all generators are heard", func() bool {
		states, err := s.admin.States(s.ctx)
		return err == nil && len(states) == len(s.machines)
	})
	s.must("a restore", func() bool {
		r := s.operator("restore", s.backupFile())
		return r.Status == 0 || strings.Contains(r.Stderr, "is missing") // tags that were created after the backup
	})
	s.insist("tag", "set", invoice, "--max-id", fmt.Sprint(s.above(invoice)))
	s.awaitReady()
	for _, tag := range permanent {
		s.persist("record of "+tag, func(ctx context.Context) error {
			_, err := s.admin.Tag(ctx, tag)
			if errors.Is(err, bus.UnknownTag) {
				s.violated("restore", tag, "the tag existed before the backup, and does not after its restore")
			}
			return err
		})
	}
	for _, tag := range tags {
		s.crowd.add(tag, tag == invoice)
	}
}
