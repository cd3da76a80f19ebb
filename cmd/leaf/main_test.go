package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
)

func TestMain(m *testing.M) {
	if os.Getenv("TZ") != "UTC" { // the zone of the times that tables show. It is read once, so the tests begin again in it
		os.Setenv("TZ", "UTC")
		panic(syscall.Exec(os.Args[0], os.Args, os.Environ()))
	}
	os.Exit(m.Run())
}

// cleanEnv hides the settings and the NATS context of the person who runs the tests.
func cleanEnv(t *testing.T) {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "LEAF_") || strings.HasPrefix(name, "NATS_") {
			t.Setenv(name, "") // restores it afterwards
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A new flag is an argument of its command until somebody makes it a setting. All flags of leaf serve are settings.
// Other commands share those, and those of output and connection.
func TestSettings(t *testing.T) {
	root := newRoot()
	serve, _, err := root.Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	isSetting := func(f *pflag.Flag) bool { return strings.Contains(f.Usage, "[$LEAF_") }
	serve.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !isSetting(f) && f.Name != "help" {
			t.Errorf("leaf serve --%s is no setting", f.Name)
		}
	})
	tag, _, err := root.Find([]string{"tag"})
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range append(root.Commands(), tag.Commands()...) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if isSetting(f) && serve.Flags().Lookup(f.Name) == nil && f.Name != "json" && f.Name != "context" {
				t.Errorf("%s --%s is a setting", cmd.CommandPath(), f.Name)
			}
		})
	}
}
