package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/snowflake"
)

func newSnowflakeCmd() *cobra.Command {
	var f idFlags
	cmd := &cobra.Command{
		Use:   "snowflake",
		Short: "Get snowflakes: IDs that contain their time",
		Long: `Get snowflakes, one a line: IDs that contain the time when they were made, and need no
tag. A generator makes at most 4,096 in a millisecond. "leaf decode" shows their parts.`,
		Example: `  leaf snowflake
  leaf snowflake -n 100000 > ids.txt
  leaf snowflake -n 5000 --ranges`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, (*bus.Client).SnowflakeRanges)
		},
	}
	f.register(cmd)
	return cmd
}

func newDecodeCmd() *cobra.Command {
	var f clientFlags
	var ids []int64
	cmd := &cobra.Command{
		Use:   "decode ID...",
		Short: "Show the time, worker and sequence number of snowflakes",
		Long: `Show the time, worker and sequence number of snowflakes, by the layout of the
installation. With --json, each is an object on a line of its own. A number that
no generator of the installation can have made is an error.`,
		Example: `  leaf decode 2056789012345678901
  leaf snowflake -n 3 | xargs leaf decode --json`,
		PreRunE: func(_ *cobra.Command, args []string) error {
			for _, arg := range args {
				id, err := strconv.ParseInt(arg, 10, 64)
				if err != nil {
					return usagef("%q is not a whole number of 64 bits", arg)
				}
				ids = append(ids, id)
			}
			return nil
		},
	}
	return f.complete(cmd, func(cmd *cobra.Command, _ []string) error {
		return f.conn.withConn(cmd, func(nc *nats.Conn, _ jetstream.JetStream) error {
			return f.decode(cmd, bus.NewClient(nc, bus.Timeout(f.conn.timeout)), ids)
		})
	})
}

// decode prints what can be decoded. The error is about the rest.
func (f *clientFlags) decode(cmd *cobra.Command, c *bus.Client, ids []int64) (failed error) {
	var rows [][]string
	for _, id := range ids {
		d, err := c.Decode(cmd.Context(), id)
		if errors.Is(err, bus.BadRequest) {
			failed = errors.Join(failed, fmt.Errorf("%d: %w", id, err))
			continue
		}
		if err != nil {
			return err
		}
		if ahead := time.Until(time.UnixMilli(d.UnixMS)); ahead > snowflake.DefaultMaxClockSkew {
			fmt.Fprintf(cmd.ErrOrStderr(), "leaf: warning: %d: by the clock of this machine its time is in the future. "+
				"The clock is slow, or no generator has issued this number.\n", id)
		}
		if !f.json {
			rows = append(rows, []string{strconv.FormatInt(id, 10), precise(time.UnixMilli(d.UnixMS)),
				strconv.FormatInt(d.Worker, 10), strconv.FormatInt(d.Sequence, 10)})
		} else if err := printJSON(cmd.OutOrStdout(), d); err != nil {
			return err
		}
	}
	if len(rows) > 0 {
		failed = errors.Join(printTable(cmd.OutOrStdout(), []string{"ID", "TIME", "WORKER", "SEQUENCE"}, rows), failed)
	}
	return failed
}
