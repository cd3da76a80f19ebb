// Package faults has one table: what fails, in which installation, and what must hold. Each row runs real
// processes. Callers of all kinds ask for all kinds of IDs meanwhile.
//
// Two things hold in every row that has callers: no ID comes twice, also none of two callers; and the answers of a
// strict tag are in order. At the end each kind of caller gets IDs again, and `leaf audit` agrees with all that
// came. docs/failures.md has the promises, in the same words as the rows.
package faults

import (
	"os"
	"slices"
	"testing"

	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// scenario is a row of the table.
type scenario struct {
	fault string
	in    []setup // the installations that it strikes, one after the other
	flags []string
	// tags are those whose IDs callers ask for. Empty: all of them. A row with others, or with "none", has no callers.
	tags  []string
	fails func(callers.Call) bool // which calls may fail; nil: none
	// strike does the damage, and checks what belongs to this row alone. Callers run meanwhile.
	strike func(in *installation)
	// alerts are subjects below leaf.events.alert of which an event must come. Its episode must end.
	alerts []string
	// audit are the kinds of contradictions that the audit at the end may find.
	audit []string
}

// none is what a row says that needs no callers.
var none = []string{}

func TestFaults(t *testing.T) {
	for _, rows := range [][]scenario{processes, databases, claims, networks, tags, workers, installations} {
		for _, row := range rows {
			for _, where := range row.in {
				t.Run(row.fault+"/"+where.name, func(t *testing.T) {
					t.Parallel()
					row.run(t, where)
				})
			}
		}
	}
}

func (row scenario) run(t *testing.T, where setup) {
	in := begin(t, where, row.flags...)
	if row.tags == nil || len(row.tags) > 0 {
		in.call(row)
	}
	row.strike(in)
	if in.callers != nil {
		in.callAgain()
	}
	for _, subject := range row.alerts {
		in.alertEnds(subject)
	}
	if in.callers != nil {
		in.stopCalling()
		in.audit(row.audit)
	}
}

// once lets those calls fail whose callers do not try again: their request may have been at the generator that died.
func once(c callers.Call) bool { return c.Once && callers.AnyFailure(c) }

// unless lets no call fail for one of these tags, and every other.
func unless(tags ...string) func(callers.Call) bool {
	return func(c callers.Call) bool { return !slices.Contains(tags, c.Tag) && callers.AnyFailure(c) }
}
