//go:build unix

package main

import "testing"

func TestCPUTimeGrowsWithWork(t *testing.T) {
	before := cpuTime()
	if before <= 0 {
		t.Fatalf("%v until now", before)
	}
	for cpuTime() <= before { // or the test never ends
	}
}
