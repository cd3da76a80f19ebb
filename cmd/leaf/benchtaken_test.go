package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/load"
)

// The file has every ID that a caller got, that of the first request too, and again what came again.
func TestBenchKeepsWhatItTook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "my ids.txt")
	for tag, check := range map[string]string{"order": "`leaf audit order --taken '", "": "`leaf audit --taken-snowflakes '"} {
		f := benchFlags{tag: tag, taken: path, load: load.Load{Callers: 1, Duration: time.Hour, Calls: 4}}
		answers := [][]bus.Range{{{First: 5, Last: 5}}, {{First: 6, Last: 9}}, {{First: 20, Last: 20}}, {{First: 8, Last: 8}}, {{First: 1, Last: 1}}}
		var stderr strings.Builder
		cmd := &cobra.Command{}
		cmd.SetErr(&stderr)
		write, err := f.keepTaken(cmd)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			b := newBench(&f, func(context.Context, []bus.Range) ([]bus.Range, error) {
				next := answers[0]
				answers = answers[1:]
				return next, nil
			})
			if err := b.first(t.Context()); err != nil {
				t.Error(err)
			}
			if r := b.run(t.Context()); r.IDs != 7 || r.IDsBefore != 1 {
				t.Errorf("%d IDs, and %d before them; want 7 and 1, as many as in the file", r.IDs, r.IDsBefore)
			}
			if err := write(b); err != nil {
				t.Error(err)
			}
		})
		text, err := os.ReadFile(path)
		if want := "1\n5-9\n20\n8\n"; err != nil || string(text) != want {
			t.Errorf("the file has %q, %v, want %q", text, err, want)
		}
		if want := "leaf: " + check + path + "'` checks what was taken\n"; stderr.String() != want {
			t.Errorf("it says %q, want %q", &stderr, want)
		}
	}
}
