package embedded

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// minRoom is what a start and the first minutes of a store need. Less of it would
// end in the next failed write.
const minRoom = 1 << 20

// CheckRoom makes dir if it is missing, and writes and syncs 1 MiB in it, which it removes
// again. It returns an error that names dir if that fails, because the disk is full, say.
func CheckRoom(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("the folder %s cannot be made: %w", dir, err)
	}
	probe, err := os.CreateTemp(dir, ".room-*")
	if err != nil {
		return roomError(dir, err)
	}
	_, err = probe.Write(make([]byte, minRoom))
	err = errors.Join(err, probe.Sync(), probe.Close())
	if err := errors.Join(err, os.Remove(probe.Name())); err != nil {
		return roomError(dir, err)
	}
	return nil
}

func roomError(dir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("there is no room in the folder %s: free at least %d MiB on its disk: %w", dir, minRoom>>20, err)
	}
	return fmt.Errorf("the folder %s is not writable: %w", dir, err)
}
