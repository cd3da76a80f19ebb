package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/snowflake"
)

func newDecodeCmd() *cobra.Command {
	var f cli.Client
	var ids []int64
	return f.Command(&cobra.Command{
		Use:   "decode ID...",
		Short: "Show the time, worker and sequence number of snowflakes",
		Long: `Show the time, worker and sequence number of snowflakes, by the layout of the
installation. With --json, each is an object on a line of its own.`,
		Example: `  leaf decode 2056789012345678901
  leaf snowflake -n 3 | xargs leaf decode --json`,
		PreRunE: func(_ *cobra.Command, args []string) error {
			for _, arg := range args {
				id, err := strconv.ParseInt(arg, 10, 64)
				if err != nil {
					return fmt.Errorf("%q is not a whole number of 64 bits", arg)
				}
				ids = append(ids, id)
			}
			return nil
		},
	}, func(s *cli.Session, _ []string) error { return decode(s, ids) })
}

// decode prints what can be decoded. The error is about the rest.
func decode(s *cli.Session, ids []int64) (failed error) {
	c := s.IDs()
	rows := []cli.Row{{"ID", "TIME", "WORKER", "SEQUENCE"}}
	for _, id := range ids {
		d, err := c.Decode(s.Context(), id)
		if errors.Is(err, bus.BadRequest) {
			failed = errors.Join(failed, fmt.Errorf("%d: %w", id, err))
			continue
		}
		if err != nil { // what came before it is printed
			failed = errors.Join(failed, err)
			break
		}
		at := time.UnixMilli(d.UnixMS)
		if time.Until(at) > snowflake.DefaultMaxClockSkew {
			s.Warnf("%d: by the clock of this machine its time is in the future. "+
				"The clock is slow, or no generator has issued this number.", id)
		}
		if !s.JSON {
			rows = append(rows, cli.Row{id, cli.TimeMS(at), d.Worker, d.Sequence})
		} else if err := cli.PrintJSON(s.Out, d); err != nil {
			return err
		}
	}
	if len(rows) > 1 {
		cli.PrintTable(s.Out, rows...)
	}
	return failed
}
