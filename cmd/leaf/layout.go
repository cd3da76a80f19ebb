package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/snowflake"
)

// layoutFlags say what the bits of a snowflake mean.
type layoutFlags struct {
	idBits, workerBits, sequenceBits int
	sequence                         *pflag.Flag // of sequenceBits
	unit                             time.Duration
	epoch                            int64
}

// defaultIDBits are all bits of a positive int64.
const defaultIDBits = snowflake.DefaultTimeBits + snowflake.DefaultWorkerBits + snowflake.DefaultSequenceBits

func (f *layoutFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.IntVar(&f.idBits, "id-bits", defaultIDBits, "`BITS` of a snowflake, 53 for numbers that JavaScript holds exactly; an installation has one layout for life")
	fs.IntVar(&f.workerBits, "worker-bits", snowflake.DefaultWorkerBits, "`BITS` of a snowflake for the worker")
	fs.IntVar(&f.sequenceBits, "sequence-bits", snowflake.DefaultSequenceBits, "`BITS` of a snowflake for the sequence number; the time has the rest of --id-bits. "+
		"If the time would have ended before 2027, the default leaves 41 bits for a time in 1ms, and 38 in 10ms")
	f.sequence = fs.Lookup("sequence-bits")
	fs.DurationVar(&f.unit, "time-unit", time.Millisecond, "`UNIT` in which a snowflake counts the time: 1ms, 10ms, 100ms or 1s")
	fs.Int64Var(&f.epoch, "epoch", snowflake.DefaultEpoch, "first `MILLISECOND` of snowflakes, since 1970; an installation has one for life")
	completeValues(cmd, "time-unit", "1ms", "10ms", "100ms", "1s")
}

// check refuses a layout that no generator can work with.
func (f *layoutFlags) check() error {
	if err := within("epoch", f.epoch, 0, time.Now().UnixMilli()); err != nil {
		return err
	}
	if !slices.Contains(snowflake.Units(), f.unit) {
		return usagef("--time-unit is %v: want 1ms, 10ms, 100ms or 1s", f.unit)
	}
	if l := f.layout(); !f.sequence.Changed && l.UnitsBits() > 0 && l.End() < oldest {
		f.sequenceBits = f.idBits - f.workerBits - timeBits(f.unit)
	}
	if err := f.layout().Validate(); err != nil {
		return usagef("--id-bits, --worker-bits, --sequence-bits, --time-unit and --epoch: %w", err)
	}
	return nil
}

// oldest is the beginning of 2027, in Unix ms. No installation has a layout that ended before, because a new one must
// last for a year. So the default of --sequence-bits may depend on it.
const oldest = 1798761600000

// timeBits are enough for 69 years or more, counted in these units: as many as the default layout has for milliseconds,
// and fewer for longer ones.
func timeBits(unit time.Duration) int {
	bits := snowflake.DefaultTimeBits
	for ; unit > time.Millisecond; unit /= 10 {
		bits -= 3
	}
	return bits
}

func (f *layoutFlags) layout() snowflake.Layout {
	return snowflake.Layout{
		Epoch: f.epoch, TimeBits: f.idBits - f.workerBits - f.sequenceBits, WorkerBits: f.workerBits, SequenceBits: f.sequenceBits,
	}.In(f.unit)
}

func newLayoutCmd() *cobra.Command {
	var f layoutFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "layout",
		Short: "Show what a layout of snowflakes gives, and until when",
		Long: `Show what a layout of snowflakes gives: its bits, how many generators and IDs it has
room for, and when its time ends. It asks no generator.

Choose before the first leaf serve: an installation keeps its layout for life.
JavaScript holds numbers below 2^53 exactly. The time lasts longer with more bits, a
longer unit of time or a later epoch. A worker that has used up the IDs of a unit
waits for the next unit. So a long unit is for low rates.`,
		Example: `  leaf layout
  leaf layout --id-bits 53 --worker-bits 6
  leaf layout --id-bits 53 --worker-bits 6 --sequence-bits 8 --time-unit 10ms
  leaf layout --id-bits 53 --worker-bits 5 --sequence-bits 16 --time-unit 1s --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			now := time.Now()
			if err := f.layout().CheckLife(now.UnixMilli()); err != nil {
				return asUsage(err)
			}
			report := reportLayout(f.layout())
			if asJSON {
				return printJSON(cmd.OutOrStdout(), report)
			}
			return report.print(cmd.OutOrStdout(), now)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	group(cmd.Flags(), groupOutput, "json")
	return cmd
}

// layoutReport says what a layout gives. IDs are strings in JSON, as everywhere.
type layoutReport struct {
	IDBits       int       `json:"id_bits"`
	TimeBits     int       `json:"time_bits"`
	WorkerBits   int       `json:"worker_bits"`
	SequenceBits int       `json:"sequence_bits"`
	UnitMS       int64     `json:"time_unit_ms"`
	Epoch        time.Time `json:"epoch"`
	End          time.Time `json:"end"` // the first time that it cannot express
	Workers      int64     `json:"workers"`
	PerUnit      int64     `json:"ids_per_unit"`   // of a worker
	PerSecond    int64     `json:"ids_per_second"` // of a worker
	LargestID    bus.ID    `json:"largest_id"`
}

func reportLayout(l snowflake.Layout) layoutReport {
	return layoutReport{
		IDBits: l.Bits(), TimeBits: l.UnitsBits(), WorkerBits: l.WorkerBits, SequenceBits: l.SequenceBits, UnitMS: l.Unit(),
		Epoch: time.UnixMilli(l.Epoch).UTC(), End: time.UnixMilli(l.End()).UTC(),
		Workers: l.Workers(), PerUnit: l.PerUnit(), PerSecond: perSecond(l), LargestID: bus.ID(math.MaxInt64 >> (defaultIDBits - l.Bits())),
	}
}

// perSecond is how many IDs a worker can issue in a second, or as many as there are numbers.
func perSecond(l snowflake.Layout) int64 {
	units := time.Second.Milliseconds() / l.Unit()
	return min(l.PerUnit(), math.MaxInt64/units) * units
}

func (r layoutReport) print(w io.Writer, now time.Time) error {
	const exact = 53 // bits of a number that JavaScript holds
	unit := time.Duration(r.UnitMS) * time.Millisecond
	javaScript := "holds each ID exactly"
	if r.IDBits > exact {
		javaScript = "needs strings or BigInt: IDs pass 2^53"
	}
	const year = 365.25 * 24 * 3600
	years := float64(r.End.Unix()-now.Unix()) / year
	fmt.Fprint(w, r.picture())
	rows := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(rows, "time\t%d bits of %v, from %s\n", r.TimeBits, unit, r.Epoch.Format(snowflake.TimeFormat))
	fmt.Fprintf(rows, "ends\t%s, in %.0f years\n", r.End.Format(snowflake.TimeFormat), years)
	fmt.Fprintf(rows, "workers\t%d: as many generators can issue IDs\n", r.Workers)
	fmt.Fprintf(rows, "IDs of a worker\t%d in %v, %d a second\n", r.PerUnit, unit, r.PerSecond)
	fmt.Fprintf(rows, "largest ID\t%d\n", r.LargestID)
	fmt.Fprintf(rows, "JavaScript\t%s\n", javaScript)
	return rows.Flush()
}

// picture draws the bits, with the numbers of the first and the last bit of each part above it:
//
//	 63  62   22  21     12  11        0
//	┌───┬───────┬───────────┬─────────────┐
//	│ 0 │ time  │ worker 10 │ sequence 12 │
//	└───┴───────┴───────────┴─────────────┘
func (r layoutReport) picture() string {
	var numbers, top, middle, bottom strings.Builder
	first := defaultIDBits
	for i, part := range []struct {
		text string
		bits int
	}{
		{"0", defaultIDBits + 1 - r.IDBits},
		{"time " + strconv.Itoa(r.TimeBits), r.TimeBits},
		{"worker " + strconv.Itoa(r.WorkerBits), r.WorkerBits},
		{"sequence " + strconv.Itoa(r.SequenceBits), r.SequenceBits},
	} {
		left, right := strconv.Itoa(first), strconv.Itoa(first-part.bits+1)
		if part.bits == 1 {
			right = ""
		}
		first -= part.bits
		width := max(len(part.text), len(left)+1+len(right))
		corner, edge := "┬", "┴"
		if i == 0 {
			corner, edge = "┌", "└"
		}
		fmt.Fprintf(&numbers, "  %s%*s ", left, width-len(left), right)
		fmt.Fprintf(&top, "%s%s", corner, strings.Repeat("─", width+2))
		fmt.Fprintf(&middle, "│ %-*s ", width, part.text)
		fmt.Fprintf(&bottom, "%s%s", edge, strings.Repeat("─", width+2))
	}
	return strings.TrimRight(numbers.String(), " ") + "\n" + top.String() + "┐\n" + middle.String() + "│\n" + bottom.String() + "┘\n"
}
