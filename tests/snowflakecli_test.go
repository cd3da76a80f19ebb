package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

func TestSnowflakeCommand(t *testing.T) {
	t.Parallel()
	g := embed(t, "--worker-id", "5")
	get := func(args ...string) string {
		t.Helper()
		return leafOK(t, append(append([]string{"snowflake"}, args...), "-s", g.url)...)
	}
	var l lines // all of one generator increase
	fmt.Fprint(&l, get())
	fmt.Fprint(&l, get("-n", "3"))
	fmt.Fprint(&l, get("--count", "10000"))
	if l.count != 10_004 || l.err != nil || l.number != 0 {
		t.Errorf("%d lines came: %v", l.count, l.err)
	}
	if p := partsOf(l.last); p.worker != 5 || time.Since(time.UnixMilli(p.ms)) > time.Minute {
		t.Errorf("the last is %+v", p)
	}
	take := func(first, last int64) int64 {
		t.Helper()
		if first <= l.last || last < first || partsOf(first).ms != partsOf(last).ms {
			t.Errorf("the range %d-%d came after %d", first, last, l.last)
		}
		l.last = last
		return last - first + 1
	}
	var count int64
	for line := range strings.Lines(get("-n", "250000", "--ranges")) {
		var first, last int64
		if _, err := fmt.Sscanf(line, "%d-%d\n", &first, &last); err != nil {
			t.Fatalf("the line %q: %v", line, err)
		}
		count += take(first, last)
	}
	if count != 250_000 {
		t.Errorf("%d IDs came as ranges", count)
	}
	if out := get("--ranges"); !regexp.MustCompile(`^\d+\n$`).MatchString(out) {
		t.Errorf("a range of one: %q", out)
	}
	in := parse[rangesReply](t, []byte(get("-n", "250000", "--json")))
	count = 0
	for _, r := range in.Ranges {
		var first, last int64
		if _, err := fmt.Sscan(r.First+" "+r.Last, &first, &last); err != nil {
			t.Fatalf("range %+v: %v", r, err)
		}
		count += take(first, last)
	}
	if in.Count != 250_000 || count != 250_000 {
		t.Errorf("as JSON: %d IDs in ranges, count is %d", count, in.Count)
	}
	file := filepath.Join(t.TempDir(), "ids.txt")
	if out := get("-n", "1000", "--output", file); out != "" {
		t.Errorf("with --output, stdout has %q", out)
	}
	text, err := os.ReadFile(file)
	l.count = 0
	fmt.Fprint(&l, string(text))
	if err != nil || l.count != 1000 || l.err != nil {
		t.Errorf("the file has %d lines: %v, %v", l.count, l.err, err)
	}

	for _, c := range []struct {
		args   []string
		stderr string
	}{
		{[]string{"-n", "0"}, "--count"},
		{[]string{"-n", "-1"}, "--count"},
		{[]string{"-n", "many"}, "many"},
		{[]string{"--ranges", "--json"}, "json"},
		{[]string{"order"}, "order"},
		{[]string{"--nope"}, "--nope"},
	} {
		r := leaf(t, append(append([]string{"snowflake"}, c.args...), "-s", g.url)...)
		r.want(t, 2, c.stderr)
		if r.stdout != "" {
			t.Errorf("leaf snowflake %v writes %q to stdout", c.args, r.stdout)
		}
	}
	leaf(t, "snowflake", "--output", filepath.Join(file, "below"), "-s", g.url).want(t, 1, "ids.txt")
	leaf(t, "snowflake", "-s", newNATS(t).ClientURL(), "--timeout", "300ms").want(t, 3, "no generator")
}

func TestDecodeCommand(t *testing.T) {
	t.Parallel()
	g := embed(t, "--worker-id", "5")
	nc := connect(t, g.url)
	id := snowflakes(t, nc, "")[0].First
	p := partsOf(id)
	at := time.UnixMilli(p.ms).UTC().Format("2006-01-02T15:04:05.000Z")
	future := fmt.Sprint(id + time.Hour.Milliseconds()<<22)
	local := func(ms int64) string { return time.UnixMilli(ms).Format("2006-01-02T15:04:05.000Z07:00") }
	decode := func(args ...string) result {
		t.Helper()
		return leaf(t, append([]string{"decode", "-s", g.url}, args...)...)
	}

	r := decode(fmt.Sprint(id), "4198399")
	r.want(t, 0)
	rows := strings.Split(r.stdout, "\n")
	for i, want := range []string{"ID TIME WORKER SEQUENCE",
		fmt.Sprintf("%d %s 5 %d", id, local(p.ms), p.sequence), fmt.Sprintf("4198399 %s 0 4095", local(1288834974658)), ""} {
		if len(rows) != 4 || strings.Join(strings.Fields(rows[i]), " ") != want {
			t.Fatalf("as a table, want row %d to be %q:\n%s", i, want, r.stdout)
		}
	}
	own := fmt.Sprintf(`{"id":"%d","time":"%s","unix_ms":%d,"worker":5,"sequence":%d}`+"\n", id, at, p.ms, p.sequence)
	old := `{"id":"4198399","time":"2010-11-04T01:42:54.658Z","unix_ms":1288834974658,"worker":0,"sequence":4095}` + "\n"
	r = decode("--json", "4198399", fmt.Sprint(id))
	r.want(t, 0)
	if r.stdout != old+own {
		t.Errorf("as JSON: %q, want %q", r.stdout, old+own)
	}

	// What can be decoded is, and the status says that not all could be.
	r = decode("--json", future, fmt.Sprint(id), "0")
	r.want(t, 1, future+": ", "future", `\n0: `)
	if r.stdout != own {
		t.Errorf("of three, one of them good: %q, want %q", r.stdout, own)
	}
	decode("--", "-5").want(t, 1, "-5", "bad_request")
	decode().want(t, 2, "arg")
	decode("text").want(t, 2, "text")
	decode("1.5").want(t, 2, "1.5")
	decode("9223372036854775808").want(t, 2, "9223372036854775808")
	decode("--nope", "5").want(t, 2, "--nope")
	leaf(t, "decode", "5", "-s", newNATS(t).ClientURL(), "--timeout", "300ms").want(t, 3, "no generator")
}

func TestWorkersCommand(t *testing.T) {
	t.Parallel()
	g := embed(t, "--worker-id", "5", "--node", "one")
	free := serve(t, t.TempDir(), "-s", g.url, "--worker-id", "12", "--node", "free", "--worker-grace", "1s")
	away := serve(t, t.TempDir(), "-s", g.url, "--worker-id", "700", "--node", "away")
	workersOf(t, client(t, g.url), "one", "free", "away")
	if text := leafOK(t, "nodes", "-s", g.url); !regexp.MustCompile(`(?m)^one +ready +5 `).MatchString(text) || !regexp.MustCompile(`(?m)^NODE +STATE +WORKER `).MatchString(text) {
		t.Errorf("nodes:\n%s", text)
	}
	nodes := parse[struct {
		Nodes []bus.State
		Lost  []bus.LostNode
	}](t, []byte(leafOK(t, "nodes", "--json", "-s", g.url))).Nodes
	if len(nodes) != 3 || nodes[2].Node != "one" || nodes[2].Worker == nil || *nodes[2].Worker != 5 || nodes[2].ReservedUntil <= time.Now().UnixMilli() {
		t.Errorf("nodes: %+v", nodes)
	}

	away.stop() // with 10 minutes of grace, of which less than a minute was reserved
	free.stop()
	const when = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)`
	want := regexp.MustCompile(`^WORKER +NODE +STATE +SINCE +LAST REPORT +RESERVED UNTIL *\n` +
		`5 +one +running( +` + when + `){3} *\n12 +free +free( +` + when + `){3} *\n700 +away +away( +` + when + `){3} *\n$`)
	var text string
	testkit.Eventually(t, "a worker that runs, one that is free and one that is away", func() bool {
		text = leafOK(t, "workers", "-s", g.url)
		return want.MatchString(text)
	})
	page := parse[workersPage](t, []byte(leafOK(t, "workers", "--json", "-s", g.url)))
	if len(page.Workers) != 3 || page.Registry != "kv" || page.Workers[0].Node != "one" || !page.Workers[0].Running || page.Workers[2].Running {
		t.Errorf("workers: %+v", page)
	}
	leaf(t, "workers", "5", "-s", g.url).want(t, 2, "5")
	leaf(t, "workers", "--nope", "-s", g.url).want(t, 2, "--nope")
	leaf(t, "workers", "-s", newNATS(t).ClientURL(), "--timeout", "300ms").want(t, 3, "no generator")
}

// The commands are found and explained where a user looks for them.
func TestHelpForSnowflakes(t *testing.T) {
	t.Parallel()
	for name, example := range map[string]string{
		"snowflake": "leaf snowflake -n ",
		"decode":    "leaf decode ",
		"workers":   "leaf workers",
		"serve":     "leaf serve ",
	} {
		help := leafOK(t, name, "--help")
		_, examples, ok := strings.Cut(help, "Examples:\n")
		if !ok || !strings.Contains(examples, example) {
			t.Errorf("leaf %s --help has no example with %q:\n%s", name, example, help)
		}
		if all := leafOK(t, "--help"); !strings.Contains(all, "\n  "+name+" ") {
			t.Errorf("leaf --help does not list %s:\n%s", name, all)
		}
		if found := leafOK(t, "__complete", name[:3]); !strings.Contains(found, name+"\t") {
			t.Errorf("%s is completed to %q", name[:3], found)
		}
	}
	help := leafOK(t, "serve", "--help")
	for _, flag := range []string{"worker-id", "worker-range", "worker-reserve", "worker-grace", "worker-bits", "sequence-bits", "epoch", "max-clock-skew", "max-clock-back"} {
		if !strings.Contains(help, "--"+flag+" ") {
			t.Errorf("leaf serve --help does not have --%s", flag)
		}
	}
}

// Values that no generator can work with are usage errors that name the flag.
func TestBadSnowflakeFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--worker-id", "1024"},
		{"--worker-id", "-1"},
		{"--worker-id", "x"},
		{"--worker-id", "5-6"},
		{"--worker-id", "4", "--worker-bits", "2", "--sequence-bits", "20"},
		{"--worker-range", "5-2"},
		{"--worker-range", "0-1024"},
		{"--worker-range", "a-b"},
		{"--worker-range", "-1-5"},
		{"--worker-range", "1-2", "--worker-id", "1"},
		{"--worker-bits", "0"},
		{"--worker-bits", "-1"},
		{"--sequence-bits", "0"},
		{"--worker-bits", "30"},
		{"--epoch", "-1"},
		{"--epoch", "99999999999999"},
		{"--worker-reserve", "0s"},
		{"--worker-reserve", "999ms"},
		{"--worker-reserve", "-1h"},
		{"--worker-reserve", "24"},
		{"--worker-grace", "0s"},
		{"--max-clock-skew", "0s"},
		{"--max-clock-back", "2s"},
	} {
		r := leaf(t, append([]string{"serve", "--http", "", "--listen", "127.0.0.1:0"}, args...)...)
		r.want(t, 2, args[0])
		if r.stdout != "" {
			t.Errorf("%v: stdout says %q", args, r.stdout)
		}
	}
}

// The layout is for life: a generator that has another is refused, with what
// differs.
func TestLayoutThatDiffers(t *testing.T) {
	t.Parallel()
	g := embed(t, "--worker-bits", "8", "--sequence-bits", "14", "--epoch", "1600000000000")
	layout := func(args ...string) []string {
		return append([]string{"serve", "--http", "", "-s", g.url}, args...)
	}
	leaf(t, layout("--worker-bits", "8", "--sequence-bits", "14")...).want(t, 1, "--epoch", "1600000000000", "1288834974657")
	leaf(t, layout("--worker-bits", "9", "--sequence-bits", "14", "--epoch", "1600000000000")...).want(t, 1, "worker bits (--worker-bits) is 8 there and 9 here")
	leaf(t, layout("--worker-bits", "8", "--sequence-bits", "13", "--epoch", "1600000000000")...).want(t, 1, "sequence bits (--sequence-bits) is 14 there and 13 here")
	leaf(t, layout()...).want(t, 1, "--epoch", "worker bits", "sequence bits")

	// IDs are of this layout, and decode takes them apart by it.
	nc := connect(t, g.url)
	r := snowflakes(t, nc, "10000")
	first := r[len(r)-1].First
	ms, worker, sequence := first>>22+1600000000000, first>>14&255, first&16383
	d := reply[bus.Decoded](t, ask(t, nc, "leaf.decode", fmt.Sprint(first)))
	if d.UnixMS != ms || d.Worker != worker || d.Sequence != sequence || time.Since(time.UnixMilli(ms)).Abs() > time.Minute {
		t.Errorf("%d is %+v, want time %d, worker %d, sequence %d", first, d, ms, worker, sequence)
	}
	join := serve(t, t.TempDir(), "-s", g.url, "--worker-bits", "8", "--sequence-bits", "14", "--epoch", "1600000000000", "--worker-id", "255")
	if workers := workersOf(t, bus.NewClient(nc), join.node); workers[join.node] != 255 {
		t.Errorf("the workers are %v", workers)
	}
}
