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

func TestHelpNamesVariables(t *testing.T) {
	cleanEnv(t)
	_, help, _ := runProbe(t, &probe{}, "probe", "--help")
	for _, want := range []string{
		"[$LEAF_MAX_BATCH]",
		"[$LEAF_CONFIG]",
	} {
		if strings.Count(help, want) != 1 {
			t.Errorf("the help does not say %s once:\n%s", want, help)
		}
	}
	if strings.Contains(help, "LEAF_HELP") {
		t.Errorf("the help has a variable for --help:\n%s", help)
	}
}

func TestCompletionKnowsCommands(t *testing.T) {
	cleanEnv(t)
	_, stdout, _ := runProbe(t, &probe{}, "__complete", "pr")
	if !strings.HasPrefix(stdout, "probe") {
		t.Errorf("completing pr: %q, want probe", stdout)
	}
}
