package audit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/snowflake"
)

// snowflakeAt is an ID of worker 5 or another one, with the default layout.
func snowflakeAt(at, plus, worker, sequence int64) int64 {
	return snowflake.DefaultLayout().Compose(snowflake.Parts{UnixMS: ms(at) + plus, Worker: worker, Sequence: sequence})
}

func TestTakenSnowflakes(t *testing.T) {
	t.Parallel()
	all := func(at, plus, worker int64) bus.Range {
		return bus.Range{First: snowflakeAt(at, plus, worker, 0), Last: snowflakeAt(at, plus, worker, 4095)}
	}
	for name, c := range map[string]struct {
		taken     []bus.Range
		elsewhere bool
		want      TakenReport
		kinds     []ContradictionKind
	}{
		"held":                {[]bus.Range{all(10, 0, 5), all(89, 999, 5)}, false, TakenReport{IDs: 8192}, nil},
		"at the end":          {[]bus.Range{all(90, 0, 5)}, false, TakenReport{IDs: 4096, Unclaimed: 4096}, []ContradictionKind{TakenUnclaimed}},
		"before the events":   {[]bus.Range{all(3, 0, 5)}, false, TakenReport{IDs: 4096, Unreported: 4096}, nil},
		"a worker of nobody":  {[]bus.Range{all(10, 0, 7)}, false, TakenReport{IDs: 4096, Unclaimed: 4096}, []ContradictionKind{TakenUnclaimed}},
		"… of another centre": {[]bus.Range{all(10, 0, 7)}, true, TakenReport{IDs: 4096, Unreported: 4096}, nil},
		"from one millisecond to the next": {[]bus.Range{{First: snowflakeAt(10, 0, 1023, 4090), Last: snowflakeAt(10, 1, 0, 1)}}, false,
			TakenReport{IDs: 8}, nil},
		"all of some milliseconds": {[]bus.Range{{First: snowflakeAt(89, 998, 6, 0), Last: snowflakeAt(90, 1, 5, 4095)}}, false,
			TakenReport{IDs: 3 << 22, Unclaimed: 3<<22 - (1+3+3+3)*4096}, slices.Repeat([]ContradictionKind{TakenUnclaimed}, mostContradictions)},
		"twice":        {[]bus.Range{all(10, 0, 5), {First: snowflakeAt(10, 0, 5, 7), Last: snowflakeAt(10, 0, 5, 8)}}, false, TakenReport{IDs: 4096, Repeated: 2}, []ContradictionKind{TakenTwice}},
		"every number": {[]bus.Range{{First: 1, Last: 1<<63 - 1}}, false, TakenReport{}, slices.Repeat([]ContradictionKind{TakenUnclaimed}, mostContradictions)},
	} {
		a := &auditor{Options: Options{TakenSnowflakes: &Runs{}}, layout: snowflake.DefaultLayout(), everyRecord: !c.elsewhere,
			workers: map[int64]*workerTrail{5: trailOf(acquired("a", 10, 5, 4, 86_400), released("a", 20, 30), acquired("b", 41, 40, 20, 90))},
			records: map[int64]admin.Worker{5: recordOf("b", 41, 90), 0: recordOf("c", 0, 500), 6: recordOf("d", 0, 500), 1023: recordOf("e", 0, 500)}}
		a.TakenSnowflakes.Add(c.taken...)
		if err := a.compareSnowflakes(t.Context()); err != nil {
			t.Fatal(err)
		}
		var kinds []ContradictionKind
		for _, f := range a.report.Contradictions {
			kinds = append(kinds, f.Kind)
			if f.Kind == TakenUnclaimed && (f.Worker == nil || f.First < bus.ID(c.taken[0].First) || f.Last > bus.ID(c.taken[len(c.taken)-1].Last) || f.First > f.Last) {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if got := *a.report.TakenSnowflakes; name != "every number" && got != c.want || !slices.Equal(kinds, c.kinds) {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, a.report.Contradictions, c.want, c.kinds)
		}
	}
}

// A run taken apart has each of its IDs in exactly one part, that of its worker and time.
func FuzzParts(f *testing.F) {
	f.Add(uint8(1), uint8(1), uint8(0), int64(1), int64(100), int64(7))
	f.Add(uint8(2), uint8(3), uint8(1), int64(31), int64(1), int64(0))
	f.Add(uint8(10), uint8(12), uint8(0), int64(1<<62), int64(9000), int64(3))
	f.Add(uint8(1), uint8(1), uint8(3), int64(1<<40), int64(9000), int64(999))
	f.Fuzz(func(t *testing.T, workerBits, sequenceBits, unit uint8, first, count, before int64) {
		l := snowflake.Layout{Epoch: 1000, WorkerBits: int(workerBits%10) + 1, SequenceBits: int(sequenceBits%10) + 1}
		l.TimeBits = 63 - l.WorkerBits - l.SequenceBits
		last := int64(1<<63 - 1)
		if units := snowflake.Units(); int(unit)%len(units) > 0 {
			l.TimeBits = min(l.TimeBits, 47)
			l = l.In(units[int(unit)%len(units)])
			last = 1<<l.Bits() - 1
		}
		first = min(max(first, 1), last)
		run := bus.Range{First: first, Last: first + max(min(count, 10_000, last-first), 0)}
		want := make(map[string]int64) // by worker and time
		for id := run.First; ; id++ {
			p, err := l.Decode(id)
			if err != nil {
				t.Fatal(err)
			}
			want[fmt.Sprint(p.Worker, p.UnixMS)]++
			if id == run.Last {
				break
			}
		}
		total := int64(0)
		for p := range parts(l, run) {
			whole := p.ids(l, run, p.times)
			sum := int64(0)
			for at := p.times.First; at <= p.times.Last; at += l.Unit() {
				// Times amid a unit are not those of its IDs.
				none := bus.Range{First: at + 1, Last: at + l.Unit() - 1}
				if n := p.ids(l, run, none); l.Unit() > 1 && n.count != 0 {
					t.Fatalf("%+v %v: %+v amid a unit", l, run, n)
				}
				around := min(max(before, 0), l.Unit()-1)
				one := p.ids(l, run, bus.Range{First: at - around, Last: at + l.Unit() - 1 - around})
				if key := fmt.Sprint(p.worker, at); one.count != want[key] || one.count != one.last-one.first+1 {
					t.Fatalf("%+v %v, worker and time %s: %+v, want %d", l, run, key, one, want[key])
				}
				sum += one.count
			}
			if whole.count != sum || whole.first < run.First || whole.last > run.Last {
				t.Fatalf("%+v %v: %+v has %+v, in sum %d", l, run, p, whole, sum)
			}
			total += sum
		}
		if total != run.Len() {
			t.Fatalf("%+v: %v has %d IDs in its parts, want %d", l, run, total, run.Len())
		}
	})
}

// The time of an ID is where its unit of time begins. That may be a little before its generator took the worker.
func TestTakenSnowflakesInUnits(t *testing.T) {
	t.Parallel()
	l := snowflake.Layout{Epoch: ms(0) - 900, TimeBits: 32, WorkerBits: 10, SequenceBits: 8}.In(time.Second)
	unit := func(at, worker int64) int64 { // the first ID of the unit in which this second begins
		return l.Compose(snowflake.Parts{UnixMS: ms(at) - 900, Worker: worker})
	}
	const each = 256
	for name, c := range map[string]struct {
		first int64
		want  TakenReport
	}{
		"held":                                {unit(10, 5), TakenReport{IDs: each}},
		"the reservation ends in it":          {unit(30, 5), TakenReport{IDs: each}},
		"the next one":                        {unit(31, 5), TakenReport{IDs: each, Unclaimed: each}},
		"the worker was taken in it":          {unit(50, 6), TakenReport{IDs: each}},
		"the one after the end of the record": {unit(91, 7), TakenReport{IDs: each, Unclaimed: each}},
	} {
		a := &auditor{Options: Options{TakenSnowflakes: &Runs{}}, layout: l, everyRecord: true,
			workers: map[int64]*workerTrail{
				5: trailOf(acquired("a", 10, 5, 4, 86_400), released("a", 20, 30), acquired("b", 41, 40, 20, 90)),
				6: trailOf(acquired("c", 50, 0, 0, 60)), 7: {number: 7}},
			records: map[int64]admin.Worker{5: recordOf("b", 41, 90), 7: recordOf("d", 70, 90)}}
		for _, w := range a.workers {
			w.inUnits(l)
		}
		a.TakenSnowflakes.Add(bus.Range{First: c.first, Last: c.first + each - 1})
		if err := a.compareSnowflakes(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := *a.report.TakenSnowflakes; got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, a.report.Contradictions, c.want)
		}
	}
}
