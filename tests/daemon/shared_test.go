package daemon

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

// folder is a server that is no more than its folder.
type folder string

func (folder) Close() error { return nil }

func TestShared(t *testing.T) {
	starts := 0
	s := Shared[folder]{Start: func(dir string) (folder, error) { starts++; return folder(dir), nil }}
	for want := 1; want <= 2; want++ {
		dir := s.Get(t)
		if again := s.Get(t); again != dir || starts != want {
			t.Errorf("%d servers, in %s and %s; want %d", starts, dir, again, want)
		}
		if _, err := os.Stat(string(dir)); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(string(dir)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the folder is still there: %v", err)
		}
	}
}
