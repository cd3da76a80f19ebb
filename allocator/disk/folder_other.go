//go:build !unix

package disk

// SyncFolder does nothing, because folders cannot be synced on this system.
func SyncFolder(string) error { return nil }
