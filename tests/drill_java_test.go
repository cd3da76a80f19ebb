//go:build drills

package tests

import (
	"testing"
	"time"
)

// Of three generators one is killed and one is frozen, while threads of the Java client of docs/clients.md take IDs with a
// deadline of 500 ms: no call fails.
func TestDrillJavaDeadlines(t *testing.T) {
	dir := javaFolder(t)
	for range 3 {
		t.Log(killAndFreezeForJava(t, dir, 500*time.Millisecond))
	}
}
