package main

import (
	"strings"
	"testing"
)

func TestHelpFitsOneScreen(t *testing.T) {
	cleanEnv(t)
	_, help, _ := runProbe(t, &probe{}, "--help")
	if n := strings.Count(help, "\n"); n > 40 {
		t.Errorf("leaf --help has %d lines:\n%s", n, help)
	}
	for line := range strings.Lines(help) {
		if len(line) > 100 {
			t.Errorf("too wide: %s", line)
		}
	}
}
