//go:build drills

package clients

import (
	"testing"
	"time"
)

// It needs a machine without other work.
func TestDrillKilledGenerator(t *testing.T) { killed(t, 500*time.Millisecond) }
