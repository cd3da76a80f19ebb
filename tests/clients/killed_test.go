package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// The deadline is long enough for a machine that is busy with other tests. The drill has one of 500 ms.
func TestKilledGenerator(t *testing.T) { killed(t, 2*time.Second) }

// Of three generators one is frozen and then killed, and later another one is killed, while each client takes IDs. At
// the end one of its two connections to NATS hangs. No call fails, and no ID comes twice.
func killed(t *testing.T, deadline time.Duration) {
	url := natskit.Start(t).ClientURL()
	link := kit.NewLink(t, strings.TrimPrefix(url, "nats://"))
	var generators []*kit.Generator
	var servers []string
	for range 3 {
		g := kit.Join(t, url, "--tag", "order:100000", "--http", "127.0.0.1:0")
		generators, servers = append(generators, g), append(servers, g.HTTP)
	}
	runners := make(map[string]*runner)
	for _, l := range languages {
		address := "nats://" + link.Addr() + "," + url
		if l.http {
			address = strings.Join(servers, ",")
		}
		runners[l.name] = l.start(t, address, url)
		runners[l.name].words("real", fmt.Sprintf("load %d", deadline.Milliseconds()))
	}
	more := func(n int) {
		t.Helper()
		for name, r := range runners {
			calls := func() int {
				n, err := strconv.Atoi(r.words("real", "calls")[0])
				kit.Must(t, err)
				return n
			}
			from := calls()
			testkit.Eventually(t, fmt.Sprintf("%d more calls of %s", n, name), func() bool { return calls() >= from+n })
		}
	}
	more(500)
	kit.Must(t, generators[0].Freeze())
	more(1000)
	kit.Must(t, generators[0].Kill())
	more(500)
	kit.Must(t, generators[1].Kill())
	more(500)
	link.Hang(true) // one of two connections to NATS
	more(500)

	dir := t.TempDir()
	seen := make(map[string]string) // by ID: which client has it
	var ofTag strings.Builder
	for name, r := range runners {
		file := filepath.Join(dir, name)
		counts := r.words("real", "end "+file)
		t.Logf("%s: %s calls, the longest took %s ms", name, counts[0], counts[2])
		if counts[1] != "0" {
			t.Errorf("%s: %s of %s calls failed", name, counts[1], counts[0])
		}
		text, err := os.ReadFile(file)
		kit.Must(t, err)
		for id := range strings.FieldsSeq(string(text)) {
			if other, twice := seen[id]; twice {
				t.Fatalf("%s came to %s and to %s", id, other, name)
			}
			seen[id] = name
			if n, err := strconv.ParseInt(id, 10, 64); err != nil {
				t.Fatalf("%s took %q, which is no ID", name, id)
			} else if n>>53 == 0 { // no snowflake
				fmt.Fprintln(&ofTag, id)
			}
		}
	}
	taken := filepath.Join(dir, "taken")
	kit.Must(t, os.WriteFile(taken, []byte(ofTag.String()), 0o600))
	kit.LeafOK(t, "audit", "-s", url, "order", "--taken", taken)
}
