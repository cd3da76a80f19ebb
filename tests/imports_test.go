package tests

import (
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/leafbus/leafbus"

// goList runs go list and returns its lines.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v: %s", args, err, stderr.String())
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// A service that imports the client links no server and no database.
func TestClientIsLight(t *testing.T) {
	t.Parallel()
	deps := goList(t, "-deps", module+"/bus")
	if len(deps) < 10 {
		t.Fatalf("go list tells only %v", deps)
	}
	for _, dep := range deps {
		if dep == module+"/bus/internal/wire" {
			continue
		}
		for _, heavy := range []string{
			"github.com/nats-io/nats-server", "github.com/uptrace/bun", "github.com/go-zookeeper",
			"github.com/go-sql-driver", "database/sql", "github.com/spf13", "github.com/prometheus", "google.golang.org/protobuf",
			module + "/bus/", module + "/schema", module + "/cmd", module + "/snowflake/zookeeper",
		} {
			if strings.HasPrefix(dep, heavy) {
				t.Errorf("package bus depends on %s", dep)
			}
		}
	}
}

func TestIDsNeedTheStandardLibraryAlone(t *testing.T) {
	t.Parallel()
	for _, dep := range goList(t, "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", module+"/allocator", module+"/snowflake") {
		switch dep {
		case "", module + "/allocator", module + "/allocator/disk", module + "/allocator/opaque", module + "/internal/fresh", module + "/snowflake":
		default:
			t.Errorf("the packages that make IDs depend on %s", dep)
		}
	}
}

// layer is how far up a package of this module is; -1 for others.
func layer(path string) int {
	rest, ok := strings.CutPrefix(path, module+"/")
	if !ok {
		return -1
	}
	switch rest {
	case "allocator/disk", // for all who have files in the data folder
		"allocator/opaque",
		"internal/fresh",
		"internal/collector", // for programs
		"internal/load",      // for leaf bench and make bench
		"bus/internal/wire", "snowflake/place", "internal/testkit":
		return 0
	case "allocator",
		"tests/daemon", "tests/proxy", "tests/browser": // what tests start; they know nothing of the product
		return 1
	case "snowflake", // takes its ranges from allocator
		"tests/mariadb", "tests/zookeeper":
		return 2
	case "bus":
		return 3
	case "bus/audit":
		return 4
	case "bus/generator":
		return 5
	case "bus/installation": // wires a generator to what is around it
		return 7
	case "bus/bustest":
		return 8
	}
	switch top, _, _ := strings.Cut(rest, "/"); top {
	case "allocator":
		return 2
	case "snowflake":
		return 3
	case "bus", "schema":
		return 6
	default: // cmd, tests
		return 9
	}
}

// Imports run one way: cmd and bustest to bus/installation, that to what is around the generator, that to bus/generator,
// that to bus, that to snowflake, that to allocator.
// Within a layer a package may import the one whose folder it is in.
func TestImportsRunOneWay(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, line := range goList(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"/...") {
		names := strings.Fields(line)
		path := names[0]
		for _, imported := range names[1:] {
			if strings.HasPrefix(imported, "github.com/nats-io/nats-server/") && path != module+"/bus/embedded" &&
				layer(path) < 8 {
				t.Errorf("%s imports %s, which is for bus/embedded alone", path, imported)
			}
			if layer(imported) < 0 {
				continue
			}
			checked++
			if layer(imported) >= layer(path) && !strings.HasPrefix(path, imported+"/") {
				t.Errorf("%s imports %s, which is not below it", path, imported)
			}
		}
	}
	if checked == 0 {
		t.Error("nothing was checked")
	}
}
