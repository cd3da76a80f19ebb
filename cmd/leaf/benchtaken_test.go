package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/load"
)

// A load whose IDs make too many runs ends, whatever it was to take, so that its memory has a bound.
func TestTooManyRunsEndALoad(t *testing.T) {
	const each = 1 << 17 // runs in an answer
	last := int64(0)
	f := benchFlags{load: load.Load{Callers: 1, Duration: time.Hour, Calls: mostRuns/each + 5}}
	r := loaded(t, f, func(_ context.Context, spare []bus.Range) ([]bus.Range, error) {
		spare = spare[:0]
		for range each {
			last += 2
			spare = append(spare, bus.Range{First: last, Last: last})
		}
		return spare, nil
	})
	if r.Stopped != errTooManyRuns.Error() || r.Runs != mostRuns+each || r.IDs != int64(r.Runs) {
		t.Errorf("%d IDs in %d runs, and it ended because of %q", r.IDs, r.Runs, r.Stopped)
	}
}

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

// A file that cannot be written is found before the load.
func TestBenchCannotKeepWhatItTakes(t *testing.T) {
	var asked atomic.Int64
	url := answering(t, "leaf.snowflake", func(string) (string, string) { asked.Add(1); return "5", "" })
	status, stdout, stderr := leaf(t, "bench", "--duration", "1h", "--taken", filepath.Join(t.TempDir(), "none", "ids"), "-s", url)
	if status != exitFailed || stdout != "" || !strings.Contains(stderr, "--taken: open") || asked.Load() != 1 {
		t.Errorf("status %d after %d requests: %s%s", status, asked.Load(), stdout, stderr)
	}
}
