package docs

import (
	"flag"
	"fmt"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leafbus/leafbus/tests/kit"
)

const reference = "docs/reference.md"

var update = flag.Bool("update", false, "write docs/reference.md")

// limits are the bounds that are promises: what each bounds, the package and name of its constant, how it is counted,
// and what happens above it.
var limits = []struct{ what, dir, name, unit, above string }{
	{"length of a tag's name", "bus/idspace", "MaxTagLen", "characters", "`bad_tag`"},
	{"length of a tag's description", "allocator", "MaxDescription", "characters", "`bad_request`"},
	{"step of a new tag", "allocator", "DefaultStep", "IDs", "`--step` sets another one"},
	{"step that SQL may give a row", "allocator", "LimitStep", "IDs", "the row is not served"},
	{"step that a generator grows to", "allocator", "DefaultMaxStep", "IDs", "`--max-step` sets another one"},
	{"IDs in one request", "allocator", "DefaultMaxBatch", "", "`batch_too_large`; `--max-batch` sets another bound"},
	{"`--max-batch`", "allocator", "LimitMaxBatch", "", "refused at the start"},
	{"wait of a request", "allocator", "DefaultMaxWait", "", "the reason why there are no IDs; `--max-wait`"},
	{"requests that wait in a generator", "allocator", "DefaultMaxWaiting", "of each kind", "`overloaded`; `--max-waiting`"},
	{"requests that NATS may hold for a generator", "bus/generator", "waitAtMost", "of its work",
		"NATS gives them to others, or refuses them"},
	{"time that memory should last", "allocator", "DefaultOutlast", "", "`--outlast`, and the tag's own"},
	{"body of a request over NATS", "internal/wire", "maxRequest", "bytes", "`bad_request`"},
	{"body of a request over HTTP", "bus/gateway", "maxBody", "bytes", "413"},
	{"header of a request over HTTP", "bus/gateway", "maxHeader", "bytes", "431"},
	{"administrative requests at a time", "bus/generator", "maxAdmin", "in a generator", "`overloaded`"},
	{"IDs that one request reveals", "bus/admin", "MostRevealed", "", "`bad_request`"},
	{"call of the Go client without a deadline", "internal/wire", "DefaultTimeout", "", "an error; `bus.Timeout`"},
	{"IDs that a pool of the Go client keeps", "bus", "mostAhead", "", "`bus.Ahead` sets another bound"},
	{"events that wait for the stream", "bus/internal/outbox", "eventQueue", "", "they are dropped and counted; alerts have the last quarter"},
	{"size of the event stream", "bus/kvstore", "DefaultEventsMaxBytes", "bytes", "the oldest go; `--events-max-bytes`"},
	{"age of an event", "bus/kvstore", "DefaultEventsMaxAge", "", "the oldest go; `--events-max-age`"},
	{"silence before a peer is gone", "bus/generator", "heartbeatExpires", "", "after 5 s the alert `node.lost`"},
	{"reservation of a worker", "snowflake", "DefaultReserve", "", "`no_worker_id`; `--worker-reserve`"},
	{"a clock that goes back", "snowflake", "DefaultMaxBack", "", "`clock_backwards`; `--max-clock-back`"},
	{"connections to MySQL", "schema", "maxConns", "of a generator", "refills wait"},
	{"a statement in MySQL", "schema", "ioTimeout", "", "the refill tries again"},
	{"free room on the disk of the data folder", "bus/embedded", "minRoom", "bytes", "with less the generator is not ready"},
	{"a file of `leaf tag apply`", "cmd/leaf", "mostTagFile", "bytes", "refused"},
}

// value is that of a constant of a package, as a reader writes it.
func value(t *testing.T, dir, name, unit string) string {
	t.Helper()
	files, err := filepath.Glob("../../" + dir + "/*.go")
	kit.Must(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		kit.Must(t, err)
		expression := group(`(?m)^\s*(?:const )?`+name+`\s+= (.*?)\s*(?://.*)?$`, string(text))
		if expression == "" {
			continue
		}
		units := strings.NewReplacer("time.Hour", "3600000000000", "time.Minute", "60000000000",
			"time.Second", "1000000000", "time.Millisecond", "1000000")
		result, err := types.Eval(token.NewFileSet(), nil, token.NoPos, units.Replace(expression))
		kit.Must(t, err)
		n, _ := constant.Int64Val(result.Value)
		switch {
		case strings.Contains(expression, "time."):
			d := regexp.MustCompile(`([hm])0[ms](0s)?$`).ReplaceAllString(time.Duration(n).String(), "$1")
			return strings.TrimSpace(d + " " + unit)
		case unit == "bytes" && n >= 1<<20:
			return fmt.Sprint(n>>20, " MiB")
		case unit == "bytes":
			return fmt.Sprint(n>>10, " KiB")
		}
		digits := fmt.Sprint(n)
		for i := len(digits) - 3; i > 0; i -= 3 {
			digits = digits[:i] + "," + digits[i:]
		}
		return strings.TrimSpace(digits + " " + unit)
	}
	t.Fatalf("%s has no constant %s", dir, name)
	return ""
}

// commands are the paths of all commands.
func commands(t *testing.T, path ...string) (all [][]string) {
	t.Helper()
	help := kit.LeafOK(t, append(slices.Clone(path), "--help")...)
	for _, m := range find(`(?m)^  ([a-z]+) `, group(`(?s)\nAvailable Commands:\n(.*?)\n\n`, help)) {
		if m[1] != "help" && m[1] != "completion" {
			next := append(slices.Clone(path), m[1])
			all = append(append(all, next), commands(t, next...)...)
		}
	}
	return all
}

// The reference has what the code says by itself: limits, flags, metrics and alerts. `go test ./tests/docs -run
// TestReference -update` writes it.
func TestReference(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# Reference: limits, metrics, alerts, flags\n\nA test writes this page from the code: " +
		"`go test ./tests/docs -run TestReference -update`. [README](../README.md) has the words.\n")

	b.WriteString("\n## Limits\n\nOther bounds are in the code, and any version may change them. " +
		"`leaf layout` shows those of snowflakes.\n\n| what | limit | above it |\n| --- | --- | --- |\n")
	for _, l := range limits {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", l.what, value(t, l.dir, l.name, l.unit), l.above)
	}

	b.WriteString("\n## Metrics\n\n| metric | type | what it is |\n| --- | --- | --- |\n")
	known := published(t)
	for _, name := range slices.Sorted(maps.Keys(known.help)) {
		if strings.HasPrefix(name, "leaf_") {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, known.kind[name], strings.ReplaceAll(known.help[name], "|", `\|`))
		}
	}

	b.WriteString("\n## Alerts of Prometheus\n\n[deploy/prometheus/alerts.yml](../deploy/prometheus/alerts.yml) has the rules, " +
		"the [runbook](runbook.md) what to do.\n\n| alert | severity | fires after |\n| --- | --- | --- |\n")
	rules := alerts(t)
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		after := rules[name].For
		if after == "" {
			after = "0s"
		}
		fmt.Fprintf(&b, "| [%s](runbook.md#%s) | %s | %s |\n", name, strings.ToLower(name), rules[name].Labels["severity"], after)
	}

	b.WriteString("\n## Flags\n\nEach flag with a variable is also a key of the YAML file of `--config`. " +
		"Commands but `serve` also have the flags under `connection`.\n")
	for _, path := range append([][]string{{"help", "connection"}}, commands(t)...) {
		help, title := "", strings.Join(path, " ")
		if path[0] == "help" {
			help, title = kit.LeafOK(t, path...), "connection"
		} else {
			help, title = kit.LeafOK(t, append(slices.Clone(path), "--help")...), "leaf "+title
		}
		var flags []string
		for line := range strings.Lines(help) {
			own := find(`^ +(-\w, )?--[a-z]`, line) != nil && find(`--(help|config)\b`, line[:min(len(line), 20)]) == nil
			if own {
				flags = append(flags, line)
			}
		}
		if len(flags) > 0 {
			fmt.Fprintf(&b, "\n### %s\n\n```\n%s```\n", title, strings.Join(flags, ""))
		}
	}
	if *update {
		kit.Must(t, os.WriteFile("../../"+reference, []byte(b.String()), 0o644))
	}
	if diff := cmp.Diff(read(t, reference), b.String()); diff != "" {
		t.Errorf("%s is not what the code says (go test ./tests/docs -run TestReference -update), -page +code:\n%s", reference, diff)
	}
}
