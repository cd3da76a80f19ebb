package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
)

func newSnowflakeCmd() *cobra.Command {
	var f idFlags
	cmd := &cobra.Command{
		Use:   "snowflake",
		Short: "Get IDs of a time, a worker and a sequence number",
		Long: `Get snowflakes, one a line: IDs that need no tag and tell when they were made.
A generator makes at most 4,096 in a millisecond. ` + "`leaf decode`" + ` takes them apart.`,
		Example: `  leaf snowflake
  leaf snowflake -n 100000 > ids.txt
  leaf snowflake -n 5000 --ranges`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, func(ctx context.Context, c *bus.Client, n int64, opts ...bus.BulkOption) iter.Seq2[bus.Range, error] {
				return c.SnowflakeRanges(ctx, n, opts...)
			})
		},
	}
	f.register(cmd)
	return cmd
}

func newDecodeCmd() *cobra.Command {
	var a admin
	cmd := &cobra.Command{
		Use:   "decode ID...",
		Short: "Tell the time, worker and sequence number of snowflakes",
		Long: `Tell the time, worker and sequence number of snowflakes, by the layout of the
installation. With --json, each is an object on a line of its own. A number that
no generator of the installation can have made is an error.`,
		Example: `  leaf decode 2056789012345678901
  leaf snowflake -n 3 | xargs leaf decode --json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := make([]int64, len(args))
			for i, arg := range args {
				id, err := strconv.ParseInt(arg, 10, 64)
				if err != nil {
					return usagef("%q is not a whole number of 64 bits", arg)
				}
				ids[i] = id
			}
			return a.ask(cmd, func(ctx context.Context, c *bus.Client) error {
				return a.decode(ctx, cmd, c, ids)
			})
		},
	}
	a.register(cmd)
	return cmd
}

// decode prints what can be decoded; the error is about the rest.
func (a *admin) decode(ctx context.Context, cmd *cobra.Command, c *bus.Client, ids []int64) error {
	var failed error
	var rows [][]string
	for _, id := range ids {
		d, err := c.Decode(ctx, id)
		switch {
		case errors.Is(err, bus.BadRequest):
			failed = errors.Join(failed, fmt.Errorf("%d: %w", id, err))
		case err != nil:
			return err
		case a.json:
			if err := printJSON(cmd.OutOrStdout(), d); err != nil {
				return err
			}
		default:
			rows = append(rows, []string{strconv.FormatInt(id, 10), d.Time, strconv.FormatInt(d.Worker, 10), strconv.FormatInt(d.Sequence, 10)})
		}
	}
	if len(rows) > 0 {
		failed = errors.Join(printTable(cmd.OutOrStdout(), []string{"ID", "TIME", "WORKER", "SEQUENCE"}, rows), failed)
	}
	return failed
}
