//go:build drills

package tests

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// movingPage is the page whose commands the drill runs.
const movingPage = "docs/moving.md"

// move is an installation of Leaf that moves to Leafbus, step by step of the page.
type move struct {
	t     *testing.T
	db    *sql.DB
	dsn   string // of Leaf's account
	nats  string
	dir   string // where an operator runs commands
	env   []string
	steps map[string][][2]string // the blocks of each step: language and text

	old        [2]*process
	addresses  [2]string // of the old ones
	generators [2]*generator
	traffic    *traffic
	tags       []string // of the traffic
	reserved   int64    // the sum of their max_ids at the end of the last moment
	quiet      int64    // the highest ID of a tag that only an old one has served
}

// foreign is what leaf doctor says if another program reserves in the table.
const foreign = "above what generators claimed"

// rowsOfTraffic is how many tags the callers use. Each has a short step, so that both programs reserve again and again.
const rowsOfTraffic = 20

// newMove makes a table as Leaf has it, with two old ones that serve it, and callers of these.
func newMove(t *testing.T) *move {
	t.Helper()
	there(t, "bash")
	server := mariadb.New(t)
	root := openDB(t, server.DSN(""))
	execute(t, root, "CREATE DATABASE leaf", "CREATE USER 'leaf' IDENTIFIED BY 'old'", "GRANT SELECT, INSERT, UPDATE, DELETE ON leaf.* TO 'leaf'")
	m := &move{t: t, db: openDB(t, server.DSN("leaf")), dsn: "leaf:old@tcp(" + server.Addr() + ")/leaf", nats: newNATS(t).ClientURL(), dir: t.TempDir(), steps: stepsOf(t)}
	m.env = []string{"NATS_URL=" + m.nats}
	execute(t, m.db, leafScripts["description"], "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 2000), ('invoice', 1, 100), "+
		"('moved', 1, 100), ('paused', 1, 100), ('limited', 1, 100), ('gone', 1, 100), ('quiet', 1, 100)")
	for i := range rowsOfTraffic {
		m.tags = append(m.tags, fmt.Sprintf("tag%02d", i))
		execute(t, m.db, fmt.Sprintf("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('tag%02d', 1, 50)", i))
	}
	m.writeDSN(server.Addr(), m.dir)
	build := exec.Command("go", "build", "-o", filepath.Join(leafBin, "oldleaf"), module+"/tests/oldleaf")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building oldleaf: %v\n%s", err, out)
	}
	for i := range m.old {
		m.addresses[i] = testkit.FreeAddress(t)
		m.startOld(i)
	}
	return m
}

// writeDSN writes the account of the generators into a folder.
func (m *move) writeDSN(addr, dir string) {
	m.t.Helper()
	must(m.t, os.WriteFile(filepath.Join(dir, "leaf.dsn"), []byte("leafbus:a-password@tcp("+addr+")/leaf\n"), 0o600))
}

func (m *move) startOld(i int) {
	m.t.Helper()
	m.old[i] = start(m.t, exec.Command(filepath.Join(leafBin, "oldleaf"), m.addresses[i], m.dsn))
	testkit.Eventually(m.t, "the old one to serve", func() bool { return m.old[i].stdout.String() != "" })
}

// stepsOf returns the blocks of the steps of the page, by their numbers.
func stepsOf(t *testing.T) map[string][][2]string {
	t.Helper()
	steps := make(map[string][][2]string)
	for _, section := range regexp.MustCompile(`(?m)^### `).Split(topFile(t, movingPage), -1)[1:] {
		number, _, _ := strings.Cut(section, ".")
		section, _, _ = strings.Cut(section, "\n## ")
		for _, block := range regexp.MustCompile("(?ms)^```(sh|sql)\n(.*?)^```$").FindAllStringSubmatch(section, -1) {
			steps[number] = append(steps[number], [2]string{block[1], block[2]})
		}
	}
	return steps
}

// step runs the commands of a step in their order. It returns what they print.
func (m *move) step(number string) (printed string) {
	m.t.Helper()
	if len(m.steps[number]) == 0 {
		m.t.Fatalf("%s has no commands in step %s", movingPage, number)
	}
	for _, block := range m.steps[number] {
		for line := range strings.Lines(block[1]) {
			line, _, _ = strings.Cut(line, " #")
			line = strings.TrimSpace(line)
			m.t.Logf("step %s: %s", number, line)
			switch {
			case block[0] == "sql":
				execute(m.t, m.db, strings.TrimSuffix(line, ";"))
			case strings.HasPrefix(line, "leaf serve "):
				m.serve(strings.Fields(line)[1:])
			case strings.HasPrefix(line, "leaf tag advance"): // as the page says
				testkit.Eventually(m.t, line+" to succeed", func() bool { return m.tryLeaf(strings.Fields(line)[1:]...).status == 0 })
			default:
				printed += m.leaf(strings.Fields(line)[1:]...)
			}
		}
	}
	return printed
}

// leaf runs a command of an operator, which must succeed.
func (m *move) leaf(args ...string) string {
	m.t.Helper()
	r := m.tryLeaf(args...)
	if r.status != 0 {
		m.t.Fatalf("leaf %v: exit status %d: %s%s", args, r.status, r.stdout, r.stderr)
	}
	return r.stdout
}

func (m *move) tryLeaf(args ...string) result {
	m.t.Helper()
	return runLeaf(m.t, command(m.t, m.dir, m.env, args))
}

// serve starts the generators with these flags. Those that run are restarted, one after the other.
func (m *move) serve(args []string) {
	m.t.Helper()
	for i, g := range m.generators {
		dir := ""
		if g == nil {
			dir = m.t.TempDir()
			must(m.t, os.CopyFS(dir, os.DirFS(m.dir)))
		} else {
			g.stop()
			dir = g.dir
		}
		m.generators[i] = m.run(i, dir, args)
	}
}

// run starts a generator. A short step lets both programs reserve often.
func (m *move) run(i int, dir string, args []string) *generator {
	m.t.Helper()
	address := testkit.FreeAddress(m.t)
	if g := m.generators[i]; g != nil {
		address = strings.TrimPrefix(g.http, "http://")
	}
	env := append([]string{"LEAF_HTTP=" + address, fmt.Sprint("LEAF_NODE=new", i), "LEAF_MAX_STEP=200"}, m.env...)
	return ready(m.t, dir, start(m.t, command(m.t, dir, env, args)))
}

// again starts a generator that was killed.
func (m *move) again(i int) {
	m.t.Helper()
	m.generators[i] = m.run(i, m.generators[i].dir, m.generators[i].cmd.Args[1:])
}

// ask asks an old one for an ID; err is Leaf's code if it has none.
func (m *move) ask(i int, tag string) (id int64, err error) {
	m.t.Helper()
	return askLeaf(m.t.Context(), "http://"+m.addresses[i], tag)
}

// want fails the test if the old one does not answer an ID.
func (m *move) want(i int, tag string) int64 {
	m.t.Helper()
	id, err := m.ask(i, tag)
	if err != nil {
		m.t.Fatalf("the old one answers %s with %v", tag, err)
	}
	return id
}

// take takes an ID of the generators.
func (m *move) take(tag string) int64 {
	m.t.Helper()
	id, err := strconv.ParseInt(strings.TrimSpace(m.leaf("get", tag)), 10, 64)
	must(m.t, err)
	return id
}

// ways are how callers reach the old ones, and the generators.
func (m *move) ways() (old, overHTTP, overNATS *way) {
	m.t.Helper()
	var addresses []string
	for _, g := range m.generators {
		if g != nil {
			addresses = append(addresses, g.http)
		}
	}
	return overLeaf("old", "http://"+m.addresses[0], "http://"+m.addresses[1]), overLeaf("new over HTTP", addresses...), overClient(client(m.t, m.nats))
}

// moment lets the callers take so many IDs, and prints what they got.
func (m *move) moment(name string, answers int64) {
	m.t.Helper()
	m.traffic.more(answers)
	m.report(name)
}

// report prints what the callers got since the last report, and checks that no ID ever came twice.
func (m *move) report(name string) {
	m.t.Helper()
	ids, text := m.traffic.report()
	var reserved int64
	for _, tag := range m.tags {
		reserved += maxIDOf(m.t, m.db, tag)
	}
	m.t.Logf("%s: %d IDs came, and max_id of %d tags rose by %d; the rest, %d, is in memory or a gap\n%s", name, ids, len(m.tags), reserved-m.reserved, reserved-m.reserved-ids, text)
	m.reserved = reserved
}

// Callers move from the old ones to generators and back, and then for good, along the commands of docs/moving.md. No ID comes
// twice in any moment, although programs are killed. What the page says about rules, restores and accounts is so.
func TestDrillLeafMove(t *testing.T) {
	m := newMove(t)
	const answers = 5000
	old, _, _ := m.ways()
	m.traffic = startTraffic(t, m.tags, 12, old)
	m.moment("1. only the old ones", answers)

	m.step("1")
	m.step("2")
	old, overHTTP, overNATS := m.ways()
	m.traffic.lead(old, overHTTP, old, overNATS)
	m.moment("2. both, with half of the callers each", answers)

	m.old[0].kill()
	m.generators[0].kill()
	m.moment("3. one of each is killed", answers)
	m.startOld(0)
	m.again(0)
	m.moment("   and started again", answers)

	m.traffic.lead(overHTTP, overNATS)
	m.moment("4. all callers moved", answers)
	m.stopOld()
	m.moment("   and the old ones stopped", answers)

	m.startOld(0)
	m.startOld(1)
	m.operate()
	m.report("5. an operator changed tags")

	m.step("5")
	m.traffic.lead(old)
	m.moment("6. all callers moved back", answers)
	for _, g := range m.generators {
		g.stop()
	}
	m.moment("   and the generators stopped", answers)
	for i := range m.generators {
		m.again(i)
	}
	m.restore()
	m.report("   a restore of a tag")

	m.traffic.lead(overHTTP, overNATS)
	m.moment("7. all callers moved again", answers)
	m.stopOld()
	if out := m.step("6"); strings.Contains(out, foreign) {
		t.Errorf("it says that another program reserves:\n%s", out)
	}
	m.moment("   and the table is Leafbus's alone", answers)
	m.startOld(0)
	for _, tag := range append(m.tags, "order") {
		if id, err := m.ask(0, tag); !errors.Is(err, errUnknownKey) {
			t.Errorf("without its account the old one answers %s with %d, %v", tag, id, err)
		}
	}
	m.heal()
	m.moment("   and the database was restored", answers)
	m.intrude()
	m.moment("   and an old one runs all the same", answers)
	m.leaf("audit")
}

func (m *move) stopOld() {
	m.t.Helper()
	for _, p := range m.old {
		p.kill()
	}
}
