package programs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Disk is how the disk of a process behaves. Only regular files feel it. Folders, sockets, stdout and stderr
// always work.
type Disk time.Duration

const (
	// Fine is a disk that works.
	Fine Disk = 0
	// Full is a disk on which each write and fsync fails with ENOSPC, and Statfs reports no free block. As on a disk
	// that copies on write, overwriting fails too. A file can be created, truncated, renamed and removed.
	Full Disk = -1
)

// Slow is a disk on which each write, fsync and truncation takes longer by delay. What waits ends within 50 ms
// after the disk is Fine again.
func Slow(delay time.Duration) Disk { return Disk(delay) }

// Control changes the clock and the disk of a process. The program must come from this package, and the process
// needs [Control.Env] in its environment. Start the process again with it, and clock and disk stay as they are.
// Close must be the last call. Otherwise the methods are for concurrent use.
type Control struct {
	path   string
	memory []byte
	words  *words
}

// words is the content of the file, like chaosControl in _std/chaos.go.
type words struct{ clock, disk atomic.Int64 }

// NewControl creates the file at path, which the process maps. The clock is right and the disk is fine.
func NewControl(path string) (*Control, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size := int(unsafe.Sizeof(words{}))
	if err := file.Truncate(int64(size)); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap %s: %w", path, err)
	}
	return &Control{path, memory, (*words)(unsafe.Pointer(&memory[0]))}, nil
}

// Env is the entry of the environment for the process.
func (c *Control) Env() string { return "LEAF_CHAOS=" + c.path }

// Clock makes time.Now of the process wrong by offset, at once. The monotonic clock and timers stay right.
func (c *Control) Clock(offset time.Duration) { c.words.clock.Store(int64(offset)) }

// Disk changes the disk of the process, at once.
func (c *Control) Disk(disk Disk) { c.words.disk.Store(int64(disk)) }

// Close removes the file. A process that runs keeps its clock and disk.
func (c *Control) Close() error { return errors.Join(syscall.Munmap(c.memory), os.Remove(c.path)) }
