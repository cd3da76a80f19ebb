//go:build drills

package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/zookeeper"
)

// clockEnv names a file that says by how many milliseconds the clock of a generator is off.
const clockEnv = "LEAF_TEST_CLOCK_OFF"

// buildOff builds leaf with a clock that can be set. Nobody can set that of this machine, which others use.
func buildOff(t *testing.T) (path string) {
	t.Helper()
	dir := t.TempDir()
	source, err := filepath.Abs("../snowflake/clock.go")
	must(t, err)
	text, err := os.ReadFile(source)
	must(t, err)
	off := strings.Replace(string(text), "Reading{now.UnixMilli(), ", "Reading{now.UnixMilli() + off(), ", 1)
	if off == string(text) {
		t.Fatalf("%s has another clock", source)
	}
	off = strings.Replace(off, "import (", "import (\n\t\"os\"\n\t\"strconv\"", 1) + `
func off() int64 {
	text, _ := os.ReadFile(os.Getenv("` + clockEnv + `"))
	n, _ := strconv.ParseInt(string(text), 10, 64)
	return n
}
`
	writeFile(t, filepath.Join(dir, "clock.go"), off)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: filepath.Join(dir, "clock.go")}})
	must(t, err)
	writeFile(t, filepath.Join(dir, "overlay.json"), string(overlay))
	path = filepath.Join(dir, "leaf")
	if out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", path, module+"/cmd/leaf").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// The clock of one generator runs ahead a little, is set back, and is set far ahead.
func TestDrillNightClock(t *testing.T) {
	program := buildOff(t)
	url := newNATS(t).ClientURL()
	clock := filepath.Join(t.TempDir(), "off")
	set := func(ms int) {
		writeFile(t, clock+".new", fmt.Sprint(ms))
		must(t, os.Rename(clock+".new", clock))
	}
	set(0)
	face := testkit.FreeAddress(t)
	odd := command(t, t.TempDir(), []string{clockEnv + "=" + clock}, []string{"serve", "-s", url, "--node", "gen_3", "--http", face})
	odd.Path, odd.Args[0] = program, program
	ready(t, odd.Dir, start(t, odd))
	w := newWatchOf(t, url, []string{face}, threeNodes[:2])
	worker := workersOf(t, bus.NewClient(w.nc), threeNodes...)["gen_3"]
	snowflakes := startProbe(t, w.nc, bus.SubjectSnowflake)

	set(800)
	rule := w.wakes("LeafClockOff", "instance", face).shows("leaf doctor", "clocks", "gen_3 is", "ahead", "NTP")
	set(0)
	rule.ends()

	set(-3000)
	back := w.wakes("leaf.clock.backwards", fmt.Sprint(worker)).shows("leaf doctor", "problem", "gen_3 is", "behind")
	set(0)
	back.ends()

	set(20_000)
	skewed := w.wakes("leaf.clock.skewed", "gen_3").shows("leaf doctor", "problem", "gen_3 is", "ahead", "may refuse to start")
	w.board(w.face["gen_1"], `"kind":"leaf.clock.skewed"`, "gen_3")
	set(0)
	skewed.ends()
	snowflakes.stop()
}

// ZooKeeper is unavailable for long, and later it has lost the record of a worker.
func TestDrillNightRegistry(t *testing.T) {
	p := newPlace(t, zookeeper.Hosts(t))
	behind, way := p.behind(t)
	w := newWatch(t, newNATS(t).ClientURL(), threeNodes, behind.flags()...)
	w.doctor = behind.flags()
	workers := workersOf(t, bus.NewClient(w.nc), threeNodes...)
	way.Refuse(true)
	way.Cut()
	runsOut := w.wakes("LeafWorkerRunsOut", "instance", w.face["gen_1"]).shows("leaf doctor", "problem", "zookeeper", way.Addr())
	expiring := w.wakes("leaf.worker.expiring", fmt.Sprint(workers["gen_2"])).shows("leaf doctor", way.Addr()).
		shows("leaf events --alerts --since 1h", "gen_2", "worker.expiring", "zookeeper")
	renewed := w.wakes("LeafWorkerNotRenewed", "instance", w.face["gen_3"]).shows("leaf doctor", "zookeeper", way.Addr())
	w.board(w.face["gen_1"], `"kind":"leaf.worker.expiring"`)
	way.Refuse(false)
	for _, c := range []*call{runsOut, expiring, renewed} {
		c.ends()
	}

	for _, name := range p.children(t, "leaf_forever") {
		if record, _, ok := node[forever](t, p, "leaf_forever", name); ok && record.Node == "gen_3" {
			must(t, p.conn.Delete("/leaf/"+p.name+"/leaf_forever/"+name, -1))
		}
	}
	worker := workersOf(t, bus.NewClient(w.nc), "gen_1", "gen_2")
	lost := w.wakes("leaf.worker.lost", fmt.Sprint(workers["gen_3"])).shows("leaf workers", "gen_1", fmt.Sprint(worker["gen_1"])).
		shows("leaf events --alerts --since 1h", "gen_3", "worker.lost")
	lost.ends()
}

// The layout of snowflakes ends in a year, less some seconds. A new one must last a year.
func TestDrillNightLayout(t *testing.T) {
	end := time.Now().Add(365*24*time.Hour + 20*time.Second).Truncate(time.Millisecond)
	w := newWatch(t, newNATS(t).ClientURL(), threeNodes, "--id-bits", "60", "--sequence-bits", "12", "--epoch", fmt.Sprint(end.UnixMilli()-1<<38))
	worker := workersOf(t, bus.NewClient(w.nc), threeNodes...)["gen_1"]
	snowflakes := startProbe(t, w.nc, bus.SubjectSnowflake)
	w.wakes("leaf.worker.ending", fmt.Sprint(worker)).shows("leaf events --alerts --since 1h", "gen_1", "worker.ending", end.Local().Format("2006-01-02T15:04")).
		says("plan a new installation")
	snowflakes.stop()
}
