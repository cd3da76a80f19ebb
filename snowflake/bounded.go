package snowflake

import (
	"bytes"
	"errors"
	"time"

	"github.com/leafbus/leafbus/allocator/disk"
)

// diskWait is how long an operation on the worker's file may take. It is longer than
// the ceiling is ahead: a disk that is slower than that cannot serve snowflakes anyway.
const diskWait = 5 * time.Second

// bounded is a Disk whose operations fail with [disk.ErrHangs] when they take too long,
// so that neither a start nor a stop waits for a disk that hangs. An operation that hangs
// may still happen. Until then every other operation fails at once, so that a late write
// never replaces a newer one.
type bounded struct {
	Disk
	runner *disk.Runner
}

func bound(d Disk) bounded { return bounded{d, disk.NewRunner(diskWait)} }

func (b bounded) ReadAt(p []byte, off int64) (n int, err error) {
	own, read := make([]byte, len(p)), 0 // the caller may use p again while this hangs
	err = b.runner.Run(func() error {
		var err error
		read, err = b.Disk.ReadAt(own, off)
		return err
	})
	if errors.Is(err, disk.ErrHangs) {
		return 0, err // read may still change
	}
	return copy(p, own[:read]), err
}

func (b bounded) WriteAt(p []byte, off int64) (int, error) {
	own := bytes.Clone(p) // the caller may use p again while this hangs
	err := b.runner.Run(func() error {
		_, err := b.Disk.WriteAt(own, off)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func (b bounded) Sync() error { return b.runner.Run(b.Disk.Sync) }

// Close leaves a file open whose disk hangs.
func (b bounded) Close() error { return b.runner.Run(b.Disk.Close) }
