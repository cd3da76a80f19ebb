package docs

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// goList runs go list in the whole module and returns its lines.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = "../.."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v: %s", args, err, stderr.String())
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// others is the template of packages that are not of the standard library.
const others = "{{if not .Standard}}{{.ImportPath}}{{end}}"

// A service that imports the client links the standard library, nats.go, what nats.go needs, and two small packages of ours. One
// that follows events or changes tags links no server, no database and no files of generators either.
func TestClientIsLight(t *testing.T) {
	t.Parallel()
	nats := []string{"github.com/nats-io/nats.go", "github.com/nats-io/nkeys", "github.com/nats-io/nuid",
		"github.com/klauspost/compress", "golang.org/x/"}
	for pkg, ours := range map[string][]string{
		"bus":        {"bus", "bus/idspace", "internal/wire"},
		"bus/admin":  {"bus", "bus/admin", "bus/idspace", "internal/wire"},
		"bus/events": {"bus", "bus/admin", "bus/events", "bus/idspace", "internal/wire"},
	} {
		for _, dep := range goList(t, "-deps", "-f", others, "./"+pkg) {
			mine, ok := strings.CutPrefix(dep, module+"/")
			if dep == "" || ok && slices.Contains(ours, mine) ||
				slices.ContainsFunc(nats, func(of string) bool { return strings.HasPrefix(dep, of) }) {
				continue
			}
			t.Errorf("package %s depends on %s", pkg, dep)
		}
	}
}

// The packages that make IDs need the standard library alone.
func TestIDsNeedTheStandardLibraryAlone(t *testing.T) {
	t.Parallel()
	allowed := []string{"", "/allocator", "/allocator/disk", "/allocator/opaque", "/bus/idspace", "/internal/fresh", "/snowflake"}
	for _, dep := range goList(t, "-deps", "-f", others, "./allocator", "./snowflake") {
		if dep != "" && !slices.Contains(allowed, strings.TrimPrefix(dep, module)) {
			t.Errorf("the packages that make IDs depend on %s", dep)
		}
	}
}

// layers are the packages of this module, the lowest layer first. Those in a folder belong to the folder's layer if
// they are not named. All others (cmd, tests) are above.
var layers = [][]string{
	{"bus/idspace"},
	{"allocator/disk", "allocator/opaque", "internal/collector", "internal/fresh", "internal/testkit",
		"bus/internal/stream", "internal/wire", "snowflake/place"},
	{"allocator"},
	{"snowflake"},
	{"bus"},
	{"bus/admin"},
	{"bus/events"},
	{"bus/audit", "bus/internal/outbox"},
	{"bus/generator"},
	{"schema", "bus/embedded", "bus/gateway", "bus/kvstore"},
	{"bus/installation"},
	{"bus/bustest"},
}

// layer is how far up a package of this module is; -1 for others.
func layer(path string) int {
	rest, ok := strings.CutPrefix(path, module+"/")
	for ; ok; rest = rest[:max(0, strings.LastIndex(rest, "/"))] {
		if i := slices.IndexFunc(layers, func(names []string) bool { return slices.Contains(names, rest) }); i >= 0 {
			return i
		}
		if !strings.Contains(rest, "/") {
			return len(layers)
		}
	}
	return -1
}

// Imports run one way: a package imports those of lower layers, and the one whose folder it is in. Only bus/embedded,
// and what is above all, know nats-server.
func TestImportsRunOneWay(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, line := range goList(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...") {
		names := strings.Fields(line)
		path := names[0]
		for _, imported := range names[1:] {
			if strings.HasPrefix(imported, "github.com/nats-io/nats-server/") && path != module+"/bus/embedded" &&
				layer(path) < len(layers)-1 {
				t.Errorf("%s imports %s, which is for bus/embedded alone", path, imported)
			}
			if layer(imported) < 0 || layer(path) == len(layers) {
				continue
			}
			checked++
			if layer(imported) >= layer(path) && !strings.HasPrefix(path, imported+"/") {
				t.Errorf("%s imports %s, which is not below it", path, imported)
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d imports were checked", checked)
	}
}
