package main

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/leafbus/leafbus/tests/kit"
)

// copyData copies a data folder without its NATS store: a copy of a running one may be unusable, and a server
// of a cluster that goes back breaks what it promised the others. Files that are there are overwritten, and keep their
// inodes.
func (w *world) copyData(from, to string) {
	kit.Must(w, filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // it was renamed meanwhile
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == "nats" {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		}
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), data, 0o600)
	}))
}

// clearData removes all of a data folder but its NATS store.
func (w *world) clearData(folder string) {
	entries, err := os.ReadDir(folder)
	kit.Must(w, err)
	for _, e := range entries {
		if e.Name() != "nats" {
			kit.Must(w, os.RemoveAll(filepath.Join(folder, e.Name())))
		}
	}
}
