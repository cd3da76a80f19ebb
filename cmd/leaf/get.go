package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
)

// idFlags are those of the commands that get IDs.
type idFlags struct {
	conn     connFlags
	count    int64
	parallel int
	ranges   bool
	json     bool
	output   string
}

// fetcher fetches n IDs.
type fetcher func(c *bus.Client, ctx context.Context, n int64, opts ...bus.BulkOption) iter.Seq2[bus.Range, error]

func newGetCmd() *cobra.Command {
	var f idFlags
	cmd := &cobra.Command{
		Use:   "get TAG",
		Short: "Get IDs of a tag",
		Long: `Get IDs of a tag, one a line.

It fetches many IDs in batches while it writes them, so it needs little memory.
--parallel says how many batches it fetches at a time. Batches of a strict tag come one
after the other, so the IDs increase, and --parallel has no effect. If a batch does not
come within --timeout, the command fails, and says how many IDs it wrote. These are
whole lines, and nobody else has these IDs. With --json it is the beginning of the object.`,
		Example: `  leaf get order
  leaf get order -n 10000000 > ids.txt
  leaf get order -n 100000000 --parallel 16 --output ids.txt
  leaf get order -n 5000 --ranges
  leaf get order -n 100 --json`,
		ValidArgsFunction: completeTags(&f.conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, func(c *bus.Client, ctx context.Context, n int64, opts ...bus.BulkOption) iter.Seq2[bus.Range, error] {
				return c.Ranges(ctx, args[0], n, opts...)
			})
		},
	}
	f.register(cmd)
	return cmd
}

func (f *idFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Int64VarP(&f.count, "count", "n", 1, "how many IDs")
	fs.IntVar(&f.parallel, "parallel", 1, fmt.Sprintf("requests at a time, each for up to %d IDs; with 1 and one generator, the IDs are in order", bus.DefaultBatch))
	fs.BoolVar(&f.ranges, "ranges", false, "write runs of IDs as first-last")
	fs.BoolVar(&f.json, "json", false, "write a JSON object with the ranges")
	group(fs, groupOutput, "json")
	fs.StringVarP(&f.output, "output", "o", "", "write to `FILE`")
	f.conn.registerClient(fs)
	exclusive(cmd, "ranges", "json")
}

func (f *idFlags) run(cmd *cobra.Command, fetch fetcher) error {
	if f.count < 1 {
		return usagef("--count is %d, not at least 1", f.count)
	}
	if err := within("parallel", f.parallel, 1, bus.LimitParallel); err != nil {
		return err
	}
	return f.conn.withConn(cmd, func(nc *nats.Conn, _ jetstream.JetStream) error {
		return f.write(cmd, fetch(bus.NewClient(nc, bus.Timeout(f.conn.timeout)), cmd.Context(), f.count, bus.Parallel(f.parallel)))
	})
}

// write writes the IDs as they come, and shows the progress.
func (f *idFlags) write(cmd *cobra.Command, ranges iter.Seq2[bus.Range, error]) (err error) {
	var file *os.File // nil: none, or no ID has come yet
	defer func() {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	w := &idWriter{w: bufio.NewWriterSize(cmd.OutOrStdout(), 1<<16), count: f.count, ranges: f.ranges, json: f.json}
	shown := cmd.ErrOrStderr()
	if f.output == "" && isTerminal(cmd.OutOrStdout()) {
		shown = io.Discard // the IDs themselves show the progress
	}
	progress := newProgress(shown, f.count, "IDs")
	defer progress.end()

	var fetchErr, writeErr error
	for r, failure := range ranges {
		if fetchErr = cmp.Or(failure, cmd.Context().Err()); fetchErr != nil {
			break
		}
		if f.output != "" && file == nil { // not earlier: if no ID comes, an old file keeps its content
			if file, err = os.Create(f.output); err != nil {
				return err
			}
			w.w.Reset(file)
		}
		if writeErr = w.write(r); writeErr != nil {
			break
		}
		progress.add(r.Len())
	}
	if fetchErr == nil {
		w.finish()
	}
	if errors.Is(fetchErr, context.Canceled) {
		fetchErr = errors.New("interrupted")
	}
	switch writeErr = cmp.Or(writeErr, w.w.Flush()); {
	case writeErr != nil: // how many were written is not known
		return writeErr
	case fetchErr != nil && w.written > 0:
		return fmt.Errorf("%d of %d IDs were written: %w", w.written, f.count, fetchErr)
	}
	return fetchErr
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

func (w *idWriter) finish() {
	if w.json {
		io.WriteString(w.w, "]}\n")
	}
}
