// Package snowflaketest has what tests of snowflakes need: the conformance
// suite that every [snowflake.Registry] must pass ([Run]), a registry in memory
// that passes it too, and a disk in memory that fails and crashes ([Disk]).
package snowflaketest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

// Backend is the registry under test. Its functions are called from the test's goroutine.
type Backend struct {
	// Open returns a new handle on the state of the test tb, as another process
	// would have it. The state of a new test is empty.
	Open func(tb testing.TB) snowflake.Registry
	// Save returns a function that sets the state of the test tb back to what
	// it is now, as an operator with a backup would.
	Save func(tb testing.TB) (restore func())
	// Wipe removes all records of the test tb, as an operator would by deleting the bucket
	// or the folder that has them. Open handles notice it by themselves.
	Wipe func(tb testing.TB)
}

// Run runs the suite. Each case gets its backend from a call of open.
func Run(t *testing.T, open func(tb testing.TB) Backend) {
	for name, run := range map[string]func(testing.TB, Backend){
		"Empty": empty, "AddAndList": addAndList, "Choice": choice, "Full": full, "ManyHandles": manyHandles,
		"Put": put, "PutAtOnce": putAtOnce, "PutConflict": putConflict, "PutOnNothing": putOnNothing, "PutOthers": putOthers,
		"ListAmidPuts": listAmidPuts, "Wiped": wiped, "Restored": restored, "ContextDone": contextDone,
	} {
		t.Run(name, func(t *testing.T) { run(t, open(t)) })
	}
}

// timeout bounds every wait of the suite. It is no measure of speed. Tests of
// the suite itself, which wait in vain, lower it.
var timeout = 30 * time.Second

func within(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	tb.Cleanup(cancel)
	return ctx
}

// record returns a record of a holder, which says so in the fields for people.
func record(node string) snowflake.Record {
	return snowflake.Record{
		Node:          node,
		Incarnation:   "of " + node,
		ReservedUntil: 1_800_000_000_001,
		Acquired:      1_700_000_000_002,
		Reported:      1_700_000_000_003,
	}
}

// add adds a record of the node for one worker.
func add(tb testing.TB, s snowflake.Registry, worker int64, node string) snowflake.Entry {
	tb.Helper()
	e, err := s.Add(within(tb), record(node), snowflake.Choice{First: worker, Last: worker})
	if err != nil {
		tb.Fatalf("Add(%d): %v", worker, err)
	}
	return e
}

// move puts the entry's record with a longer reservation, and returns what the
// registry must have now.
func move(tb testing.TB, s snowflake.Registry, e snowflake.Entry) snowflake.Entry {
	tb.Helper()
	e.ReservedUntil++
	version, err := s.Put(within(tb), e.Record, e.Version)
	if err != nil {
		tb.Fatalf("Put(%d): %v", e.Worker, err)
	}
	if version == 0 || version == e.Version {
		tb.Errorf("Put(%d) on version %d made version %d", e.Worker, e.Version, version)
	}
	e.Version = version
	return e
}

// wantList waits for the list to be this, as a list may be a little old. An
// error that passes is allowed.
func wantList(tb testing.TB, s snowflake.Registry, want ...snowflake.Entry) {
	tb.Helper()
	untilList(tb, s, func(got []snowflake.Entry) bool {
		if len(got) != len(want) {
			return false
		}
		for i, e := range want {
			if got[i] != e {
				return false
			}
		}
		return true
	}, want)
}

// untilList lists until ok says that the list is as wanted, and returns that.
func untilList(tb testing.TB, s snowflake.Registry, ok func([]snowflake.Entry) bool, want any) []snowflake.Entry {
	tb.Helper()
	for ctx := within(tb); ; {
		got, err := s.List(ctx)
		if err == nil && ok(got) {
			return got
		}
		if ctx.Err() != nil {
			tb.Fatalf("List: %+v, %v; want %+v", got, err, want)
		}
	}
}

// wantConflict puts a record on a version that must not be there. An error that passes is allowed.
func wantConflict(tb testing.TB, s snowflake.Registry, r snowflake.Record, version uint64) {
	tb.Helper()
	for ctx := within(tb); ; {
		got, err := s.Put(ctx, r, version)
		if errors.Is(err, snowflake.ErrConflict) {
			return
		}
		if err == nil || ctx.Err() != nil {
			tb.Fatalf("Put(%d) on version %d made version %d, %v; want %v", r.Worker, version, got, err, snowflake.ErrConflict)
		}
	}
}

func wantError(tb testing.TB, what string, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("%s: error %v, want %v", what, err, want)
	}
}
