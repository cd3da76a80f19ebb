package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
)

// The records of a tag are put back everywhere, and generators with empty folders claim the same ranges again: IDs repeat for real. The audit
// names that by the events, by what callers got, and by a trace, also if the same name claims the same range.
func TestRepeatedIDsAreNamed(t *testing.T) {
	t.Parallel()
	for _, node := range []string{"n1", "n2"} {
		t.Run(node, func(t *testing.T) {
			t.Parallel()
			eachAudited(t, "", []string{"n1"}, auditedArgs, func(t *testing.T, a *auditSite) {
				a.take(1)
				putBack := a.keep("order")
				end := a.end()
				var taken audit.Taken
				take := func() {
					t.Helper()
					ranges, err := bus.NewClient(a.nc).Take(t.Context(), "order", 150)
					must(t, err)
					taken.Add("order", ranges...)
				}
				a.take(99) // the rest of the first range
				take()
				args := slices.Clone(a.nodes["n1"].cmd.Args[1:])
				a.nodes["n1"].stop()
				putBack()
				if a.dsn != "" {
					execute(t, openDB(t, a.dsn), fmt.Sprintf("UPDATE leaf_alloc SET max_id = %d WHERE biz_tag = 'order'", end), "DELETE FROM leaf_mark")
				}
				args = args[slices.Index(args, "-s"):]
				args[slices.Index(args, "--node")+1] = node
				again := serve(t, t.TempDir(), args...)
				take()
				again.stop()
				last := serve(t, t.TempDir(), append(slices.Clone(args), "--node", "reader")...)
				defer last.stop()
				r := a.audit(&taken)
				got := ""
				for _, c := range r.Contradictions {
					got += fmt.Sprintf("%s %d-%d\n", c.Kind, c.First, c.Last)
				}
				for _, want := range []string{"overlap ", "taken_twice "} {
					if !strings.Contains(got, want) {
						t.Errorf("no %s: %s\nend %d, %+v", want, got, end, r.Tags)
					}
				}
				trace, err := bus.NewClient(a.nc, bus.Timeout(patience)).Trace(t.Context(), bus.TraceRequest{Tag: "order", ID: bus.ID(end)})
				if err != nil || len(trace.Claims) != 2 {
					t.Errorf("trace: %+v, %v", trace, err)
				}
			})
		})
	}
}
