package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
)

// chunk is how many IDs are asked for at a time: few enough that any generator
// gives them, many enough that the network does not count.
const chunk = 100_000

// idFlags are those of the commands that get IDs.
type idFlags struct {
	conn   connFlags
	count  int64
	ranges bool
	json   bool
	output string
}

// fetch asks for n IDs.
type fetch func(ctx context.Context, c *bus.Client, n int64) ([]bus.Range, error)

func newGetCmd() *cobra.Command {
	var f idFlags
	cmd := &cobra.Command{
		Use:   "get TAG",
		Short: "Get IDs of a tag",
		Long: `Get IDs of a tag, one a line.

Large numbers are fetched in batches as they are written, so memory stays small.
If the command ends early, what it wrote are whole lines of IDs that nobody else
has (with --json, the beginning of the object), and it says how many.`,
		Example: `  leaf get order
  leaf get order -n 10000000 > ids.txt
  leaf get order -n 5000 --ranges
  leaf get order -n 100 --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, func(ctx context.Context, c *bus.Client, n int64) ([]bus.Range, error) {
				return c.Take(ctx, args[0], n)
			})
		},
	}
	f.register(cmd)
	return cmd
}

func (f *idFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Int64VarP(&f.count, "count", "n", 1, "how many IDs")
	fs.BoolVar(&f.ranges, "ranges", false, "write runs of IDs as first-last")
	fs.BoolVar(&f.json, "json", false, "write a JSON object with the ranges")
	fs.StringVarP(&f.output, "output", "o", "", "write to `FILE`")
	f.conn.register(fs)
	f.conn.registerContext(fs)
	cmd.MarkFlagsMutuallyExclusive("ranges", "json")
}

func (f *idFlags) run(cmd *cobra.Command, from fetch) (err error) {
	if f.count < 1 {
		return usagef("--count is %d, not at least 1", f.count)
	}
	nc, err := f.conn.connectClient(cmd)
	if err != nil {
		return err
	}
	defer nc.Close()

	out := cmd.OutOrStdout()
	if f.output != "" {
		file, err := os.Create(f.output)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	w := &idWriter{w: bufio.NewWriterSize(out, 1<<16), count: f.count, ranges: f.ranges, json: f.json}
	progress := newProgress(cmd.ErrOrStderr(), f.count)
	defer progress.end()

	got, err := take(cmd.Context(), bus.NewClient(nc), from, f.count, f.conn.timeout, func(ranges []bus.Range) error {
		for _, r := range ranges {
			progress.add(r.Len())
			if err := w.write(r); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		w.finish()
	}
	err = errors.Join(err, w.w.Flush())
	if err != nil && got > 0 {
		return fmt.Errorf("%d of %d IDs were written: %w", got, f.count, err)
	}
	return err
}

// take fetches n IDs and passes their ranges on as they come. Each request may
// take timeout. It returns how many were passed on.
func take(ctx context.Context, c *bus.Client, from fetch, n int64, timeout time.Duration, f func([]bus.Range) error) (got int64, err error) {
	for size := int64(chunk); got < n; {
		size = min(size, n-got)
		attempt, cancel := context.WithTimeout(ctx, timeout)
		ranges, err := from(attempt, c, size)
		cancel()
		switch {
		case errors.Is(err, bus.BatchTooLarge) && size > 1:
			size = (size + 1) / 2
			continue
		case ctx.Err() != nil:
			return got, errors.New("interrupted")
		case err != nil:
			return got, err
		}
		if err := f(ranges); err != nil {
			return got, err
		}
		got += size
	}
	return got, nil
}

// idWriter writes IDs in the form that was asked for.
type idWriter struct {
	w            *bufio.Writer
	count        int64 // of all that is to be written
	ranges, json bool
	line         []byte
	written      bool
}

// write writes a range. bufio keeps the error, so the last one tells.
func (w *idWriter) write(r bus.Range) (err error) {
	switch {
	case w.json:
		if w.written {
			w.w.WriteByte(',')
		} else {
			fmt.Fprintf(w.w, `{"count":%d,"ranges":[`, w.count) // not before there is something: an error writes nothing
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
	w.written = true
	return err
}

func (w *idWriter) finish() {
	if w.json {
		io.WriteString(w.w, "]}\n")
	}
}
