// Package faults has one table: what fails, in which installation, and what must hold. Each row runs real processes.
// Callers of all kinds ask for all kinds of IDs meanwhile.
//
// In every row that has callers, no ID comes twice, also none of two callers, and the answers of a strict tag are in
// order. At the end each kind of caller gets IDs again, and `leaf audit` agrees with all that came. docs/guarantees.md
// has the promises.
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
	in    []setup  // the installations that it strikes, one after the other
	flags []string // further ones of leaf serve
	// tags are those whose IDs callers ask for. Nil: all but idle. None: the row has no callers.
	tags  []string
	fails func(callers.Call) bool // which calls may fail; nil: none
	// strike does the damage, and checks what belongs to this row alone. Callers run meanwhile.
	strike func(in *installation)
	// alert is the subject below leaf.events.alert of an alert that must come, and whose episodes must end.
	alert string
}

// none is the tags of a row that needs no callers.
var none = []string{}

func TestFaults(t *testing.T) {
	for _, rows := range [][]scenario{networks, processes, databases, claims, losses, installations} {
		for _, row := range rows {
			for _, where := range row.in {
				t.Run(row.fault+"/"+where.name, func(t *testing.T) {
					t.Parallel()
					row.run(begin(t, where, row.flags...))
				})
			}
		}
	}
}

func (row scenario) run(in *installation) {
	if row.tags == nil || len(row.tags) > 0 {
		in.call(row.tags, row.fails)
	}
	row.strike(in)
	if in.callers != nil {
		in.callAgain()
	}
	if row.alert != "" {
		in.alertEnds(row.alert)
	}
	if in.callers != nil {
		in.stopCalling()
	}
}

// once lets those calls fail whose callers do not try again: their request may have been at the generator that died.
func once(c callers.Call) bool { return c.Once && callers.AnyFailure(c) }

// unless lets no call fail for one of these tags, and every other.
func unless(tags ...string) func(callers.Call) bool {
	return func(c callers.Call) bool { return !slices.Contains(tags, c.Tag) && callers.AnyFailure(c) }
}
