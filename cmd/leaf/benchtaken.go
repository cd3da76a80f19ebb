package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
)

// keepTaken creates the file of --taken. The function that it returns writes what the load took, and says what checks
// it.
func (f *benchFlags) keepTaken(cmd *cobra.Command) (write func(*bench) error, err error) {
	if f.taken == "" {
		return func(*bench) error { return nil }, nil
	}
	file, err := os.Create(f.taken)
	if err != nil {
		return nil, fmt.Errorf("--taken: %w", err)
	}
	return func(b *bench) error {
		if err := errors.Join(b.writeTaken(file), file.Close()); err != nil {
			return fmt.Errorf("--taken: %w", err)
		}
		check := "leaf audit --taken-snowflakes " + quoted(f.taken)
		if f.tag != "" {
			check = "leaf audit " + quoted(f.tag) + " --taken " + quoted(f.taken)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "leaf: `%s` checks what was taken\n", check)
		return nil
	}, nil
}

// writeTaken writes the IDs that callers got as ranges, one a line. IDs that came twice are there again at
// the end, or the first ones of them.
func (b *bench) writeTaken(file io.Writer) error {
	w := bufio.NewWriter(file)
	runs := b.seen.Finish()
	_, again := b.seen.Repeated()
	var line []byte
	for _, ranges := range [][]bus.Range{runs, again} {
		for _, r := range ranges {
			line = append(r.Append(line[:0]), '\n')
			if _, err := w.Write(line); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}
