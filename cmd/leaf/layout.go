package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/snowflake"
)

func newLayoutCmd() *cobra.Command {
	var f layoutFlags
	cmd := cli.Local(&cobra.Command{
		Use:   "layout",
		Short: "Show what a layout of snowflakes gives, and until when",
		Long: `Show what a layout of snowflakes gives, and when its time ends. It asks no generator.
An installation keeps its layout for life: docs/snowflakes.md.`,
		Example: `  leaf layout
  leaf layout --id-bits 53 --worker-bits 6
  leaf layout --id-bits 53 --worker-bits 6 --sequence-bits 8 --time-unit 10ms
  leaf layout --id-bits 53 --worker-bits 5 --sequence-bits 16 --time-unit 1s --json`,
	}, func(s *cli.Session, _ []string) error {
		l, err := f.layout()
		if err != nil {
			return err
		}
		if err := l.CheckLife(time.Now().UnixMilli()); err != nil {
			return cli.UsageError{Err: err}
		}
		r := reportLayout(l)
		return s.Print(r, r.print)
	})
	f.register(cmd.Flags())
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
	units := time.Second.Milliseconds() / l.Unit()
	return layoutReport{
		IDBits: l.Bits(), TimeBits: l.TimeBits, WorkerBits: l.WorkerBits, SequenceBits: l.SequenceBits,
		UnitMS: l.Unit(), Epoch: time.UnixMilli(l.Epoch).UTC(), End: time.UnixMilli(l.End()).UTC(),
		Workers: l.Workers(), PerUnit: l.PerUnit(), PerSecond: min(l.PerUnit(), math.MaxInt64/units) * units,
		LargestID: bus.ID(math.MaxInt64 >> (defaultIDBits - l.Bits())),
	}
}

func (r layoutReport) print(w io.Writer) {
	const exact = 53 // bits of a number that JavaScript holds
	javaScript := "holds each ID exactly"
	if r.IDBits > exact {
		javaScript = "needs strings or BigInt: IDs pass 2^53"
	}
	unit := time.Duration(r.UnitMS) * time.Millisecond
	years := time.Until(r.End).Hours() / 24 / 365.25
	cli.PrintTable(w,
		cli.Row{"time", fmt.Sprintf("%d bits of %v, from %s", r.TimeBits, unit, r.Epoch.Format(snowflake.TimeFormat))},
		cli.Row{"ends", fmt.Sprintf("%s, in %.0f years", r.End.Format(snowflake.TimeFormat), years)},
		cli.Row{"workers", fmt.Sprintf("%d, of %d bits: as many generators can issue IDs", r.Workers, r.WorkerBits)},
		cli.Row{"IDs of a worker", fmt.Sprintf("%d in %v, of %d bits: %d a second", r.PerUnit, unit, r.SequenceBits,
			r.PerSecond)},
		cli.Row{"largest ID", r.LargestID},
		cli.Row{"JavaScript", javaScript})
}

// layoutFlags say what the bits of a snowflake mean.
type layoutFlags struct {
	idBits, workerBits, sequenceBits int // 0 sequenceBits: the default
	unit                             time.Duration
	epoch                            int64
}

// defaultIDBits are all bits of a positive int64.
const defaultIDBits = snowflake.DefaultTimeBits + snowflake.DefaultWorkerBits + snowflake.DefaultSequenceBits

func (f *layoutFlags) register(fs *pflag.FlagSet) {
	fs.IntVar(&f.idBits, "id-bits", defaultIDBits, "`BITS` of a snowflake, 53 for JavaScript; the time has the rest")
	fs.IntVar(&f.workerBits, "worker-bits", snowflake.DefaultWorkerBits, "`BITS` for the worker")
	cli.Number(fs, &f.sequenceBits, "sequence-bits", 0, 1, defaultIDBits,
		"`BITS` for the sequence number (default 12, or fewer so that the time has 69 years)")
	fs.DurationVar(&f.unit, "time-unit", time.Millisecond, "`UNIT` of a snowflake's time: 1ms, 10ms, 100ms or 1s")
	cli.Number(fs, &f.epoch, "epoch", snowflake.DefaultEpoch, 0, time.Now().UnixMilli(),
		"first `MILLISECOND` of snowflakes, since 1970")
}

// layout returns the layout. It refuses one that no generator can work with.
func (f *layoutFlags) layout() (snowflake.Layout, error) {
	if !slices.Contains(snowflake.Units(), f.unit) {
		return snowflake.Layout{}, cli.Usagef("--time-unit is %v: want 1ms, 10ms, 100ms or 1s", f.unit)
	}
	f.sequenceBits = cmp.Or(f.sequenceBits, min(snowflake.DefaultSequenceBits, f.idBits-f.workerBits-timeBits(f.unit)))
	l := snowflake.Layout{Epoch: f.epoch, TimeBits: f.idBits - f.workerBits - f.sequenceBits, WorkerBits: f.workerBits,
		SequenceBits: f.sequenceBits}.In(f.unit)
	if err := l.Validate(); err != nil {
		return l, cli.Usagef("--id-bits, --worker-bits, --sequence-bits, --time-unit and --epoch: %w", err)
	}
	return l, nil
}

// timeBits are enough for 69 years or more, counted in these units: as many as the default layout
// has for milliseconds, and fewer for longer ones.
func timeBits(unit time.Duration) int {
	bits := snowflake.DefaultTimeBits
	for ; unit > time.Millisecond; unit /= 10 {
		bits -= 3
	}
	return bits
}
