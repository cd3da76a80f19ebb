package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// writeConfig writes a file leaf.yaml into the working directory of the test.
func writeConfig(t *testing.T, text string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("leaf.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPrecedence(t *testing.T) {
	type env map[string]string
	const file = "server: from-file\n"
	tests := []struct {
		name   string
		args   []string
		env    env
		file   string
		want   string
		origin source
	}{
		{"nothing", nil, nil, "", "", fromDefault},
		{"file", nil, nil, file, "from-file", fromFile},
		{"NATS_ beats the file", nil, env{"NATS_URL": "from-nats"}, file, "from-nats", fromNATS},
		{"LEAF_ beats NATS_", nil, env{"NATS_URL": "from-nats", "LEAF_SERVER": "from-leaf"}, file, "from-leaf", fromEnv},
		{"a flag beats LEAF_", []string{"-s", "from-flag"}, env{"NATS_URL": "from-nats", "LEAF_SERVER": "from-leaf"}, file, "from-flag", fromFlag},
		{"an empty NATS_ is none", nil, env{"NATS_URL": ""}, file, "from-file", fromFile},
		{"an empty LEAF_ is empty", nil, env{"NATS_URL": "from-nats", "LEAF_SERVER": ""}, file, "", fromDefault},
		{"an empty flag is empty", []string{"-s", ""}, env{"NATS_URL": "from-nats"}, file, "", fromDefault},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cleanEnv(t)
			writeConfig(t, tt.file)
			t.Setenv("LEAF_CONFIG", "leaf.yaml")
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			var from source
			p := &probe{do: func(cmd *cobra.Command) error {
				from = origin(cmd, "server")
				return nil
			}}
			if status, _, stderr := runProbe(t, p, append([]string{"probe", "x"}, tt.args...)...); status != exitOK {
				t.Fatalf("status %d: %s", status, stderr)
			}
			if p.conn.server != tt.want || from != tt.origin {
				t.Errorf("--server is %q from %q, want %q from %q", p.conn.server, from, tt.want, tt.origin)
			}
		})
	}
}

func TestLists(t *testing.T) {
	tests := []struct {
		name string
		args []string
		env  string
		file string
		want []string
	}{
		{name: "YAML list", file: "tag: [a, 'b,c', 3]", want: []string{"a", "b,c", "3"}},
		{name: "YAML text", file: "tag: a, b", want: []string{"a", "b"}},
		{name: "empty YAML list", file: "tag: []", want: nil},
		{name: "environment", env: "c, d ,", file: "tag: [a]", want: []string{"c", "d"}},
		{name: "flags", args: []string{"--tag", "e", "--tag", "f,g"}, env: "c", file: "tag: [a]", want: []string{"e", "f", "g"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cleanEnv(t)
			writeConfig(t, tt.file)
			if tt.env != "" {
				t.Setenv("LEAF_TAG", tt.env)
			}
			p := &probe{}
			args := append([]string{"probe", "x", "--config", "leaf.yaml"}, tt.args...)
			if status, _, stderr := runProbe(t, p, args...); status != exitOK {
				t.Fatalf("status %d: %s", status, stderr)
			}
			if !slices.Equal(p.tags, tt.want) {
				t.Errorf("--tag is %q, want %q", p.tags, tt.want)
			}
		})
	}
}

func TestFileServesAllCommands(t *testing.T) {
	cleanEnv(t)
	writeConfig(t, "elsewhere: true\nmax-batch: 100\nhttp: ''\n")
	p := &probe{}
	if status, _, stderr := runProbe(t, p, "probe", "x", "--config", "leaf.yaml"); status != exitOK {
		t.Fatalf("status %d: %s", status, stderr)
	}
	if p.limit != 100 || p.http != "" {
		t.Errorf("--max-batch is %d and --http %q, want 100 and empty", p.limit, p.http)
	}
}

func TestRefusedConfiguration(t *testing.T) {
	tests := []struct {
		name  string
		file  string
		env   string // NAME=value
		wants []string
	}{
		{name: "unknown key", file: "tag: a\nservr: x", wants: []string{`leaf.yaml: unknown key "servr" near line 2`}},
		{name: "config as a key", file: "config: b.yaml", wants: []string{`unknown key "config"`}},
		{name: "argument as a key", file: "max-id: 5", wants: []string{`unknown key "max-id" near line 1: no command has such a setting`}},
		{name: "help as a key", file: "help: true", wants: []string{`unknown key "help"`}},
		{name: "key twice", file: "tag: a\ntag: b", wants: []string{`leaf.yaml, line 2: want YAML lines of the form "flag: value", each flag once`}},
		{name: "bad value in the file", file: "max-batch: many", wants: []string{"leaf.yaml: max-batch: ", "--max-batch", `"many"`}},
		{name: "list for one value", file: "max-batch: [1]", wants: []string{"leaf.yaml: max-batch: ", "single value"}},
		{name: "mapping for a list", file: "tag: {a: b}", wants: []string{"leaf.yaml: tag: ", "want a list"}},
		{name: "no value", file: "http:", wants: []string{"leaf.yaml: http: ", "nothing after the colon"}},
		{name: "not a mapping", file: "- hunter2", wants: []string{"leaf.yaml, line 1: want YAML lines"}},
		{name: "not YAML", file: "tag: a\npassword: hunter2: b", wants: []string{"leaf.yaml, line 2: want YAML lines"}},
		{name: "an anchor by mistake", file: "password: *hunter2", wants: []string{"leaf.yaml: want YAML lines"}},
		{name: "secret list", file: "password: [hunter2]", wants: []string{"leaf.yaml: password: ", "secret"}},
		{name: "secret in the file", file: "dsn: hunter2", wants: []string{"leaf.yaml: dsn: ", "secret"}},
		{name: "secret in the environment", env: "LEAF_DSN=hunter2", wants: []string{"LEAF_DSN: ", "secret"}},
		{name: "bad value in LEAF_", env: "LEAF_MAX_BATCH=many", wants: []string{"LEAF_MAX_BATCH: bad value for --max-batch: \"many\" is not a whole number\n"}},
		{name: "bad value in NATS_", env: "NATS_TIMEOUT=5", wants: []string{"NATS_TIMEOUT: ", "--timeout", "missing unit"}},
		{name: "no such file", env: "LEAF_CONFIG=" + filepath.Join("no", "where.yaml"), wants: []string{"--config: ", "where.yaml"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cleanEnv(t)
			writeConfig(t, tt.file)
			t.Setenv("LEAF_CONFIG", "leaf.yaml")
			if name, value, ok := strings.Cut(tt.env, "="); ok {
				t.Setenv(name, value)
			}
			status, _, stderr := runProbe(t, &probe{}, "probe", "x")
			if status != exitUsage {
				t.Errorf("status %d, want %d", status, exitUsage)
			}
			for _, want := range tt.wants {
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr %q does not say %q", stderr, want)
				}
			}
			if strings.Contains(stderr, "hunter2") {
				t.Errorf("stderr %q shows the secret", stderr)
			}
		})
	}
}

func TestEnvironmentMeetsRequirements(t *testing.T) {
	newCommand := func() *cobra.Command {
		cmd := &cobra.Command{Use: "strict", RunE: func(*cobra.Command, []string) error { return nil }}
		cmd.Flags().String("first", "", "required")
		cmd.Flags().String("second", "", "not with the first")
		if err := cmd.MarkFlagRequired("first"); err != nil {
			t.Fatal(err)
		}
		exclusive(cmd, "first", "second")
		group(cmd.Flags(), groupOutput, "first", "second")
		return cmd
	}
	strict := func() (int, string) {
		var out strings.Builder
		status := run(t.Context(), assemble(newCommand()), []string{"strict"}, &out, &out)
		return status, out.String()
	}
	cleanEnv(t)
	if status, out := strict(); status != exitUsage {
		t.Errorf("without a required flag: status %d, want %d: %s", status, exitUsage, out)
	}
	t.Setenv("LEAF_FIRST", "x")
	if status, out := strict(); status != exitOK {
		t.Errorf("with the required flag in the environment: status %d: %s", status, out)
	}
	t.Setenv("LEAF_SECOND", "x")
	if status, out := strict(); status != exitUsage || !strings.Contains(out, "leaf: --first and --second: give one of them\n") {
		t.Errorf("with two exclusive flags: status %d, want %d: %s", status, exitUsage, out)
	}
}
