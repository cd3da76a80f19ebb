//go:build drills

package drills

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// move is an installation of Leaf that moves to Leafbus, step by step of docs/moving.md. Leaf is tests/oldleaf: a
// program that reserves as Leaf does.
type move struct {
	t          *testing.T
	dsn        string // with all rights
	leafDSN    string // of Leaf's account
	url        string
	dir        string                 // where an operator runs commands
	steps      map[string][][2]string // the blocks of each step: language and text
	old        [2]*kit.Process
	addresses  [2]string // of the old ones
	generators [2]*kit.Generator
	tags       []string
	sets       []*callers.Callers
}

// newMove makes a table as Leaf has it, and two old ones that serve it.
func newMove(t *testing.T) *move {
	t.Helper()
	server := kit.NewMariaDB(t)
	kit.SQL(t, server.DSN(""), "CREATE DATABASE leaf", "CREATE USER 'leaf' IDENTIFIED BY 'old'",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON leaf.* TO 'leaf'")
	m := &move{t: t, dsn: server.DSN("leaf"), leafDSN: "leaf:old@tcp(" + server.Addr() + ")/leaf", url: natskit.Start(t).ClientURL(),
		dir: t.TempDir(), steps: make(map[string][][2]string)}
	kit.SQL(t, m.dsn, `CREATE TABLE leaf_alloc (biz_tag varchar(128) NOT NULL DEFAULT '', max_id bigint(20) NOT NULL DEFAULT '1',
		step int(11) NOT NULL, description varchar(256) DEFAULT NULL,
		update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (biz_tag)) ENGINE=InnoDB`)
	for _, tag := range []string{"order", "moved", "limited", "gone"} {
		kit.SQL(t, m.dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('"+tag+"', 1, 100)")
	}
	for i := range 20 { // each with a short step, so that both programs reserve again and again
		m.tags = append(m.tags, fmt.Sprintf("tag%02d", i))
		kit.SQL(t, m.dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('"+m.tags[i]+"', 1, 50)")
	}
	writeFile(t, filepath.Join(m.dir, "leaf.dsn"), "leafbus:a-password@tcp("+server.Addr()+")/leaf\n")
	for _, section := range regexp.MustCompile(`(?m)^### `).Split(page(t, "docs/moving.md"), -1)[1:] {
		number, _, _ := strings.Cut(section, ".")
		section, _, _ = strings.Cut(section, "\n## ")
		for _, block := range regexp.MustCompile("(?ms)^```(sh|sql)\n(.*?)^```$").FindAllStringSubmatch(section, -1) {
			m.steps[number] = append(m.steps[number], [2]string{block[1], block[2]})
		}
	}
	for i := range m.old {
		m.addresses[i] = testkit.FreeAddress(t)
		m.startOld(i)
	}
	return m
}

func (m *move) startOld(i int) {
	m.t.Helper()
	m.old[i] = kit.Start(m.t, exec.Command(kit.Build(m.t, "tests/oldleaf"), m.addresses[i], m.leafDSN))
	testkit.Eventually(m.t, "the old one serves", func() bool { return m.old[i].Stdout() != "" })
}

// step runs the commands of a step of the page in their order. It returns what they print.
func (m *move) step(number string) (printed string) {
	m.t.Helper()
	if len(m.steps[number]) == 0 {
		m.t.Fatalf("docs/moving.md has no commands in step %s", number)
	}
	for _, block := range m.steps[number] {
		for line := range strings.Lines(block[1]) {
			line, _, _ = strings.Cut(line, " #")
			line = strings.TrimSpace(line)
			m.t.Logf("step %s: %s", number, line)
			switch {
			case block[0] == "sql":
				kit.SQL(m.t, m.dsn, strings.TrimSuffix(line, ";"))
			case strings.HasPrefix(line, "leaf serve "):
				m.serve(strings.Fields(line)[2:])
			case strings.HasPrefix(line, "leaf tag advance"): // until its exit status is 0, as the page says
				testkit.Eventually(m.t, line, func() bool { return m.try(strings.Fields(line)[1:]...).Status == 0 })
			default:
				printed += m.leaf(strings.Fields(line)[1:]...)
			}
		}
	}
	return printed
}

func (m *move) try(args ...string) kit.Result {
	m.t.Helper()
	return kit.Finish(m.t, kit.Start(m.t, kit.Command(m.t, m.dir, []string{"NATS_URL=" + m.url}, args...)))
}

func (m *move) leaf(args ...string) string {
	m.t.Helper()
	r := m.try(args...)
	if r.Status != 0 {
		m.t.Fatalf("leaf %v: exit status %d: %s%s", args, r.Status, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// serve starts the generators with the flags of the page. Those that run are restarted, one after the other. A short
// step lets both programs reserve often.
func (m *move) serve(flags []string) {
	m.t.Helper()
	for i, g := range m.generators {
		dir, address := m.t.TempDir(), testkit.FreeAddress(m.t)
		if g != nil {
			kit.Must(m.t, g.Stop())
			dir, address = g.Dir, strings.TrimPrefix(g.HTTP, "http://")
		} else {
			kit.Must(m.t, os.CopyFS(dir, os.DirFS(m.dir)))
		}
		m.generators[i] = kit.Serve(m.t, dir, append([]string{"-s", m.url, "--http", address, "--node", fmt.Sprint("new", i),
			"--max-step", "200"}, flags...)...)
	}
}

func (m *move) newHTTP() []string { return []string{m.generators[0].HTTP, m.generators[1].HTTP} }

func (m *move) oldHTTP() []string {
	return []string{"http://" + m.addresses[0], "http://" + m.addresses[1]}
}

// moment lets callers take IDs of all tags, from these addresses and, if client, over NATS. No ID of any moment may
// come twice.
func (m *move) moment(name string, client bool, addresses ...[]string) {
	m.t.Helper()
	m.t.Log(name)
	set := callers.New(m.t, callers.Config{Tags: m.tags, Deadline: hasty, MayFail: func(callers.Call) bool { return true }})
	for _, a := range addresses {
		for range 4 {
			set.HTTP(a...)
		}
	}
	if client {
		set.Take(m.url).Next(m.url)
	}
	set.More(5000)
	set.Stop()
	m.sets = append(m.sets, set)
	for _, tag := range m.tags {
		unique(m.t, tag, m.sets...)
	}
}

// Callers move from the old ones to generators and back, and then for good, along the commands of docs/moving.md, while
// programs are killed. No ID comes twice in any moment.
func TestDrillLeafMove(t *testing.T) {
	m := newMove(t)
	m.moment("1. only the old ones", false, m.oldHTTP())
	m.step("1")
	m.step("2")
	m.moment("2. both, with half of the callers each", true, m.oldHTTP(), m.newHTTP())
	kit.Must(t, m.old[0].Kill())
	kit.Must(t, m.generators[0].Kill())
	m.moment("3. one of each is killed", true, m.oldHTTP(), m.newHTTP())
	m.startOld(0)
	m.generators[0] = m.generators[0].Again()
	m.moment("   and started again", true, m.oldHTTP(), m.newHTTP())
	m.moment("4. all callers moved", true, m.newHTTP())
	m.operate()
	m.step("5")
	m.moment("5. all callers moved back", false, m.oldHTTP())
	m.moment("6. all callers moved again", true, m.newHTTP())
	for _, p := range m.old {
		p.Close()
	}
	m.step("6")
	m.moment("   and the table belongs to Leafbus alone", true, m.newHTTP())
	m.startOld(0)
	if code := status(m.addresses[0], "/api/segment/get/order"); code == 200 {
		t.Error("without its account the old one gives IDs")
	}
	kit.SQL(t, m.dsn, "UPDATE leaf_alloc SET max_id = 1")
	m.moment("   and the database was restored", true, m.newHTTP())
	// The tags that nobody asks for are still at 1.
	testkit.Eventually(t, "leaf tag advance --all", func() bool { return m.try("tag", "advance", "--all").Status == 0 })
	m.leaf("audit")
}

// operate does what stands in "What Leaf does not know" of the page.
func (m *move) operate() {
	m.t.Helper()
	old := func(tag string) int { return status(m.addresses[0], "/api/segment/get/"+tag) }
	m.leaf("tag", "set", "moved", "--max-id", "100000")
	if id := strings.TrimSpace(m.leaf("get", "moved")); len(id) < 6 {
		m.t.Errorf("after max_id was moved a generator gives %s", id)
	}
	m.leaf("tag", "pause", "moved")
	if r := m.try("get", "moved"); r.Status != 1 || !strings.Contains(r.Stderr, "paused") {
		m.t.Errorf("a paused tag: %+v", r)
	}
	if old("moved") != 200 {
		m.t.Error("the old one knows of a pause")
	}
	m.leaf("tag", "resume", "moved")
	m.leaf("tag", "rm", "gone", "--yes")
	m.leaf("tag", "add", "gone", "--step", "100")
	for _, kind := range []string{"--order=strict", "--opaque"} {
		m.try("tag", "add", "order", kind).Want(m.t, 1, "conflict")
	}
}
