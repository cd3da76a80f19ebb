package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// What is an argument of one command counts only on the command line. A variable that no command reads is named, once.
func TestVariables(t *testing.T) {
	for name, c := range map[string]struct {
		env     []string
		warning string
	}{
		"none":                      {},
		"settings":                  {env: []string{"LEAF_SERVER=x", "LEAF_MAX_BATCH=5", "LEAF_CONFIG="}},
		"of another command":        {env: []string{"LEAF_ELSEWHERE=true"}},
		"an argument":               {env: []string{"LEAF_MAX_ID=5"}, warning: "LEAF_MAX_ID"},
		"unknown":                   {env: []string{"LEAF_TAGS=5", "LEAF_DATADIR=secret"}, warning: "LEAF_DATADIR, LEAF_TAGS"},
		"help":                      {env: []string{"LEAF_HELP=true"}, warning: "LEAF_HELP"},
		"of Kubernetes":             {env: []string{"LEAF_SERVICE_HOST=h", "LEAF_PORT_4222_TCP_ADDR=h", "LEAF_PORT=p", "LEAF_NATS_SERVICE_PORT=1", "LEAF_SERVICE_PORT_NATS=4"}},
		"nearly that of Kubernetes": {env: []string{"LEAF_PORTS=p"}, warning: "LEAF_PORTS"},
		"of others":                 {env: []string{"LEAFBUS=1", "XLEAF_A=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			cleanEnv(t)
			for _, entry := range c.env {
				variable, value, _ := strings.Cut(entry, "=")
				t.Setenv(variable, value)
			}
			p := &probe{}
			status, _, stderr := runProbe(t, p, "probe", "x")
			if status != exitOK || p.maxID != 0 {
				t.Errorf("status %d, --max-id is %d: %s", status, p.maxID, stderr)
			}
			want := ""
			if c.warning != "" {
				want = "leaf: warning: no command reads these variables, so they are ignored: " + c.warning + ". "
			}
			if (stderr != "") != (want != "") || !strings.HasPrefix(stderr, want) || strings.Count(stderr, "\n") > 1 || strings.Contains(stderr, "secret") {
				t.Errorf("stderr is %q, want %q", stderr, want)
			}
		})
	}
}

// A new flag is an argument until somebody makes it a setting. These are the settings of all commands but serve:
// connection and output, and those that serve has, too.
func TestSettings(t *testing.T) {
	cleanEnv(t)
	root := newRoot()
	serve, _, err := root.Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	serve.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Annotations[noteGroup] == nil {
			t.Errorf("leaf serve --%s is in no group", f.Name)
		}
	})
	shared := []string{"json", "config", "context", "http", "http-tlscert", "mysql", "mysql-file", "mysql-table", "mysql-tlsca", "mysql-tlscert", "mysql-tlskey", "data-dir", "zookeeper", "zookeeper-name"}
	var conn connFlags
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	conn.register(fs, groupConnection)
	fs.VisitAll(func(f *pflag.Flag) { shared = append(shared, f.Name) })
	for _, cmd := range tree(root) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if wanted := cmd == serve || slices.Contains(shared, f.Name); isSetting(f) != wanted && f.Name != "help" {
				t.Errorf("%s --%s is a setting: %v", cmd.CommandPath(), f.Name, isSetting(f))
			}
			if hasVariable := strings.Contains(f.Usage, "[$LEAF_"); hasVariable != isSetting(f) {
				t.Errorf("the help of %s --%s says %q", cmd.CommandPath(), f.Name, f.Usage)
			}
		})
	}
}
