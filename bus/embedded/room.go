package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// minRoom is the free room that a start and the first minutes of a store need. With less,
// a write would soon fail again.
const minRoom = 1 << 20

// CheckRoom makes dir if it is missing, and writes and syncs 1 MiB in it, which it removes
// again. It returns an error that names dir if that fails, because the disk is full, say. dir
// must belong to the caller alone.
func CheckRoom(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("the folder %s cannot be made: %w", dir, err)
	}
	if err := tryRoom(filepath.Join(dir, ".room")); err != nil {
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return fmt.Errorf("there is no room in the folder %s: free at least %d MiB on its disk: %w", dir, minRoom>>20, err)
		}
		return fmt.Errorf("the folder %s is not writable: %w", dir, err)
	}
	return nil
}

// tryRoom writes a file of the size minRoom and removes it. One that a crash left is replaced.
func tryRoom(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, minRoom))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(name))
}
