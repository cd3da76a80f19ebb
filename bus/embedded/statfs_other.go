//go:build !linux && !darwin && !freebsd

package embedded

// FreeRoom is not known on this system: only a failed write shows that the disk is full.
func FreeRoom(string) (bytes uint64, ok bool) { return 0, false }
