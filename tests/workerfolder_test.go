package tests

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
	worker "github.com/leafbus/leafbus/snowflake"
)

// A copy of a data folder that is started beside the original is another
// generator: it has a name and a worker of its own.
func TestCopiedFolder(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	url := server.ClientURL()
	original := serve(t, t.TempDir(), "-s", url, "--node", "original")
	l := startLoad(t, loadConfig{callers: 2, maxBatch: 500}, url)
	l.more(300)
	dir := t.TempDir()
	copyFolder(t, original.folder, filepath.Join(dir, "leaf-data"))
	copied := serve(t, dir, "-s", url)
	if copied.node == original.node {
		t.Errorf("the copy calls itself %s too", copied.node)
	}
	if log := copied.stderr.String(); !strings.Contains(log, "copied") {
		t.Error("its log does not say that the folder is a copy")
	}
	held := func() map[string]int64 { // as each says itself
		t.Helper()
		found := make(map[string]int64)
		for _, s := range states(t, client(t, url), 2) {
			if s.Worker == nil {
				t.Fatalf("%s has no worker: %v", s.Node, s.Reasons)
			}
			found[s.Node] = *s.Worker
		}
		return found
	}
	workers := held()
	if len(workers) != 2 || workers[original.node] == workers[copied.node] {
		t.Errorf("the workers are %v", workers)
	}
	l.more(1000)
	l.stop()
	// The original's name does not make a copy the original either.
	original.stop()
	dir = t.TempDir()
	copyFolder(t, original.folder, filepath.Join(dir, "leaf-data"))
	twin := serve(t, dir, "-s", url, "--node", original.node)
	if now := held(); now[original.node] == workers[original.node] {
		t.Errorf("a copy took the worker %d of the original", now[original.node])
	}
	twin.stop()
	original = original.again(t)
	// It is a folder like any other from now on, and so is the original.
	for _, g := range []*generator{original, copied} {
		g.stop()
		if again := g.again(t); again.node != g.node {
			t.Errorf("%s came back as %s", g.node, again.node)
		}
	}
	if again := held(); !maps.Equal(workers, again) {
		t.Errorf("the workers were %v and are %v", workers, again)
	}
}

// Whatever is left of the file of the worker, no ID repeats. If one slot of it
// can be read, the generator keeps its worker.
func TestDamagedWorkerFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keeps  bool
		damage func(file []byte) []byte
	}{
		"empty":                   {false, func([]byte) []byte { return nil }},
		"zeros":                   {false, func(file []byte) []byte { return make([]byte, len(file)) }},
		"both slots half-written": {false, func(file []byte) []byte { clear(file[100:4096]); clear(file[4196:]); return file }},
		"one slot half-written":   {true, func(file []byte) []byte { clear(file[100:4096]); return file }},
		"cut off":                 {true, func(file []byte) []byte { return file[:4196] }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := embed(t)
			nc := connect(t, g.url)
			last := snowflakes(t, nc, "100000")
			g.kill()
			path := filepath.Join(g.folder, "worker")
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, path, string(c.damage(file)))
			g = g.again(t)
			nc = connect(t, g.url)
			id := snowflake(t, nc)
			before, after := partsOf(last[len(last)-1].Last), partsOf(id)
			if (before.worker == after.worker) != c.keeps || after.ms <= before.ms {
				t.Errorf("%+v came after %+v, want of the same worker: %v", after, before, c.keeps)
			}
			// From then on it is as before.
			g.stop()
			g = g.again(t)
			if p := partsOf(snowflake(t, connect(t, g.url))); p.worker != after.worker || p.ms <= after.ms {
				t.Errorf("%+v came after %+v", p, after)
			}
		})
	}
}

// A generator ends when another process has written to the file of its worker,
// and leaves it as it is.
func TestWorkerFileOfAnother(t *testing.T) {
	t.Parallel()
	g := embed(t)
	snowflake(t, connect(t, g.url))
	path := filepath.Join(g.folder, "worker")
	open := func() *worker.File {
		t.Helper()
		file, err := worker.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		return file
	}
	var saved worker.Saved
	testkit.Eventually(t, "another process writes to the file", func() bool {
		file := open()
		saved, _ = file.Saved()
		saved.Ceiling += 60_000
		err := file.Save(saved)
		if err != nil && !errors.Is(err, worker.ErrNotAlone) { // the generator has written just now
			t.Fatal(err)
		}
		return err == nil
	})
	result{g.wait(patience), "", g.stderr.String()}.want(t, 1, "another process has used this data folder")
	if now, _ := open().Saved(); now != saved {
		t.Errorf("the file says %+v, want %+v", now, saved)
	}
}
