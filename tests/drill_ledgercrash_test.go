//go:build drills

package tests

import "testing"

// Generators are killed and frozen between reservation and claim, more often than tests may take.
func TestDrillStopsBetweenReservationAndClaim(t *testing.T) { stopBetween(t, 8) }
