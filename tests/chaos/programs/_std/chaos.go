package syscall

import (
	"sync/atomic"
	"unsafe"
)

// This file and a few edits make Go's package syscall obey a control file. Packages os and internal/poll write files
// through Write, Pwrite and so on. Edits rename those to realWrite, realPwrite and so on, and the functions below
// replace them. Only a copy inside the kernel (copy_file_range) goes another way.

// chaosControl is what the control file holds. Only the controlling process writes it.
type chaosControl struct {
	clock int64 // nanoseconds by which the clock is wrong
	disk  int64 // 0: works; below 0: full; above 0: the nanoseconds that each write takes longer
}

// chaos is the mapped control file, or nil in a process that nobody controls. Nothing changes it after the start.
var chaos = mapChaos()

// mapChaos maps the file at $LEAF_CHAOS. It removes the variable, so that leaf does not warn of an unknown one.
func mapChaos() *chaosControl {
	path, ok := Getenv("LEAF_CHAOS")
	if !ok {
		return nil
	}
	Unsetenv("LEAF_CHAOS")
	fd, err := Open(path, O_RDONLY|O_CLOEXEC, 0)
	if err != nil {
		panic("LEAF_CHAOS: open " + path + ": " + err.Error())
	}
	data, err := Mmap(fd, 0, int(unsafe.Sizeof(chaosControl{})), PROT_READ, MAP_SHARED)
	if err != nil {
		panic("LEAF_CHAOS: mmap " + path + ": " + err.Error())
	}
	Close(fd)
	return (*chaosControl)(unsafe.Pointer(&data[0]))
}

// ChaosNow moves a reading of the wall clock. time.Now calls it.
func ChaosNow(sec int64, nsec int32) (int64, int32) {
	if chaos == nil {
		return sec, nsec
	}
	ns := sec*1e9 + int64(nsec) + atomic.LoadInt64(&chaos.clock)
	return ns / 1e9, int32(ns % 1e9)
}

// chaosDelay waits before a write to a regular file while the disk is slow. It returns ENOSPC if the disk is full.
// The thread waits too, as it does for a real disk. stdout and stderr always work: they may be a log file of the test.
func chaosDelay(fd int) error {
	if chaos == nil || fd <= Stderr || atomic.LoadInt64(&chaos.disk) == 0 {
		return nil
	}
	var stat Stat_t
	if Fstat(fd, &stat) != nil || stat.Mode&S_IFMT != S_IFREG {
		return nil
	}
	const step = 50e6 // the wait ends this soon after the disk works again
	for waited := int64(0); ; waited += step {
		disk := atomic.LoadInt64(&chaos.disk)
		if disk < 0 {
			return ENOSPC
		}
		if waited >= disk {
			return nil
		}
		pause := NsecToTimespec(min(step, disk-waited))
		Nanosleep(&pause, nil)
	}
}

func Write(fd int, p []byte) (int, error) {
	if err := chaosDelay(fd); err != nil {
		return 0, err
	}
	return realWrite(fd, p)
}

func Pwrite(fd int, p []byte, offset int64) (int, error) {
	if err := chaosDelay(fd); err != nil {
		return 0, err
	}
	return realPwrite(fd, p, offset)
}

func Fsync(fd int) error {
	if err := chaosDelay(fd); err != nil {
		return err
	}
	return realFsync(fd)
}

func Fdatasync(fd int) error {
	if err := chaosDelay(fd); err != nil {
		return err
	}
	return realFdatasync(fd)
}

// Ftruncate can be slow. On a full disk it works, because it allocates nothing.
func Ftruncate(fd int, length int64) error {
	if err := chaosDelay(fd); err != nil && err != ENOSPC {
		return err
	}
	return realFtruncate(fd, length)
}

func Statfs(path string, disk *Statfs_t) error {
	err := realStatfs(path, disk)
	if err == nil && chaos != nil && atomic.LoadInt64(&chaos.disk) < 0 {
		disk.Bfree, disk.Bavail = 0, 0
	}
	return err
}
