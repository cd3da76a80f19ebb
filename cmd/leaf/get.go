package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/cli"
)

// mostParallel is more than any installation answers faster with.
const mostParallel = 1000

// idFlags are those of the commands that get IDs.
type idFlags struct {
	cli.Client
	count    int64
	parallel int
	ranges   bool
	output   string // a file; empty: stdout
}

func newGetCmd() *cobra.Command {
	var f idFlags
	return f.command(&cobra.Command{
		Use:   "get TAG",
		Short: "Get IDs of a tag",
		Long:  "Get IDs of a tag, one a line.",
		Example: `  leaf get order
  leaf get order -n 10000000 > ids.txt
  leaf get order -n 100000000 --parallel 16 --output ids.txt
  leaf get order -n 5000 --ranges
  leaf get order -n 100 --json`,
	})
}

func newSnowflakeCmd() *cobra.Command {
	var f idFlags
	return f.command(&cobra.Command{
		Use:   "snowflake",
		Short: "Get snowflakes: IDs that contain their time",
		Long: `Get snowflakes, one a line: IDs that contain the time when they were made, and need no
tag. "leaf decode" shows their parts.`,
		Example: `  leaf snowflake
  leaf snowflake -n 100000 > ids.txt
  leaf snowflake -n 5000 --ranges`,
	})
}

// command completes cmd, which gets IDs of the tag in its argument, or else snowflakes.
func (f *idFlags) command(cmd *cobra.Command) *cobra.Command {
	f.Command(cmd, func(s *cli.Session, args []string) error {
		if len(args) == 0 {
			return f.write(s, s.IDs().SnowflakeRanges(s.Context(), f.count, bus.Parallel(f.parallel)))
		}
		return f.write(s, s.IDs().Ranges(s.Context(), args[0], f.count, bus.Parallel(f.parallel)))
	})
	fs := cmd.Flags()
	cli.Number(fs, &f.count, "count,n", 1, 1, math.MaxInt64, "how many IDs")
	cli.Number(fs, &f.parallel, "parallel", 1, 1, mostParallel, "requests at a time; not for a strict tag")
	fs.BoolVar(&f.ranges, "ranges", false, "write runs of IDs as first-last")
	fs.StringVarP(&f.output, "output", "o", "", "write to `FILE`")
	cmd.MarkFlagsMutuallyExclusive("ranges", "json")
	return cmd
}

// write writes the IDs as they come, and shows the progress.
func (f *idFlags) write(s *cli.Session, ranges iter.Seq2[bus.Range, error]) (err error) {
	var file *os.File // nil: none, or no ID has come yet
	defer func() {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	w := &idWriter{w: s.Out, count: f.count, ranges: f.ranges, json: f.JSON}
	for r, failure := range ranges {
		if err = cmp.Or(failure, s.Context().Err()); err != nil {
			break
		}
		if f.output != "" && file == nil { // not earlier: if no ID comes, an old file keeps its content
			if file, err = os.Create(f.output); err != nil {
				return err
			}
			w.w = bufio.NewWriterSize(file, 1<<16)
		}
		if err := w.write(r); err != nil { // how many were written is not known
			return err
		}
		if f.output != "" || !cli.IsTerminal(s.Cmd.OutOrStdout()) { // else the IDs themselves show the progress
			s.Progress("IDs", w.written, f.count)
		}
	}
	switch {
	case !w.json || w.written == 0:
	case err == nil:
		w.w.WriteString("]}\n")
	default: // still JSON: the caller has the IDs
		fmt.Fprintf(w.w, "],\"written\":%d}\n", w.written)
	}
	if writeErr := w.w.Flush(); writeErr != nil {
		return writeErr
	}
	if err = s.Failed(err); err != nil && w.written > 0 {
		err = fmt.Errorf("%d of %d IDs were written: %w", w.written, f.count, err)
	}
	return err
}

// idWriter writes IDs as lines, ranges or JSON.
type idWriter struct {
	w            *bufio.Writer
	count        int64 // of all IDs, for JSON
	ranges, json bool
	line         []byte
	written      int64
}

// write writes a range. It returns only the last error, because bufio keeps the first one.
func (w *idWriter) write(r bus.Range) (err error) {
	switch {
	case w.json:
		if w.written > 0 {
			w.w.WriteByte(',')
		} else {
			fmt.Fprintf(w.w, `{"count":%d,"ranges":[`, w.count) // not earlier: if no ID comes, nothing is written
		}
		_, err = fmt.Fprintf(w.w, `{"first":"%d","last":"%d"}`, r.First, r.Last)
	case w.ranges:
		w.line = append(r.Append(w.line[:0]), '\n')
		_, err = w.w.Write(w.line)
	default:
		for id := range r.All() {
			w.line = append(strconv.AppendInt(w.line[:0], id, 10), '\n')
			if _, err = w.w.Write(w.line); err != nil {
				return err
			}
		}
	}
	w.written += r.Len()
	return err
}
