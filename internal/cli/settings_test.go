package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writeConfig writes a file leaf.yaml into the working directory of the test.
func writeConfig(t *testing.T, text string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("leaf.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLists(t *testing.T) {
	for name, c := range map[string]struct {
		args      []string
		env, file string
		want      []string
	}{
		"YAML list":       {file: "tag: [a, b, 3]", want: []string{"a", "b", "3"}},
		"YAML text":       {file: "tag: a, b", want: []string{"a", "b"}},
		"empty YAML list": {file: "tag: []", want: nil},
		"environment":     {env: "c, d ,", file: "tag: [a]", want: []string{"c", "d"}},
		"flags":           {args: []string{"--tag", "e", "--tag", "f,g"}, env: "c", file: "tag: [a]", want: []string{"e", "f", "g"}},
	} {
		t.Run(name, func(t *testing.T) {
			cleanEnv(t)
			writeConfig(t, c.file)
			if c.env != "" {
				t.Setenv("LEAF_TAG", c.env)
			}
			p := &probe{}
			status, _, stderr := runProbe(t, p, append([]string{"probe", "x", "--config", "leaf.yaml"}, c.args...)...)
			if status != ExitOK || !slices.Equal(p.tags, c.want) {
				t.Errorf("--tag is %q, want %q; status %d: %s", p.tags, c.want, status, stderr)
			}
		})
	}
}

func TestRefusedConfiguration(t *testing.T) {
	tests := []struct {
		name  string
		file  string
		env   string // NAME=value
		args  []string
		wants []string
	}{
		{name: "unknown key", file: "tag: a\nservr: x", wants: []string{`leaf.yaml: unknown key "servr" near line 2`}},
		{name: "argument as a key", file: "max-id: 5", wants: []string{`unknown key "max-id" near line 1: no command has such a setting`}},
		{name: "key twice", file: "tag: a\ntag: b", wants: []string{`leaf.yaml line 2: want YAML lines of the form "flag: value", each flag once`}},
		{name: "bad value in the file", file: "max-batch: many", wants: []string{"leaf.yaml: max-batch: ", `"many"`}},
		{name: "list for one value", file: "max-batch: [1]", wants: []string{"leaf.yaml: max-batch: ", "single value"}},
		{name: "no value", file: "http:", wants: []string{"leaf.yaml: http: ", "nothing after the colon"}},
		{name: "not YAML", file: "tag: a\npassword: hunter2: b", wants: []string{"leaf.yaml line 2: want YAML lines"}},
		{name: "an anchor by mistake", file: "password: *hunter2", wants: []string{"leaf.yaml: want YAML lines"}},
		{name: "bad value in LEAF_", env: "LEAF_MAX_BATCH=many", wants: []string{"LEAF_MAX_BATCH: ", `"many"`}},
		{name: "below what may be", env: "LEAF_MAX_BATCH=0", wants: []string{"LEAF_MAX_BATCH: want at least 1"}},
		{name: "bad value in NATS_", env: "NATS_TIMEOUT=5", wants: []string{"NATS_TIMEOUT: ", "missing unit"}},
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
			status, _, stderr := runProbe(t, &probe{}, append([]string{"probe", "x"}, tt.args...)...)
			if status != ExitUsage {
				t.Errorf("status %d, want %d", status, ExitUsage)
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

// What is an argument of one command counts only on the command line. A variable that no command reads is named, once.
func TestVariables(t *testing.T) {
	for name, c := range map[string]struct {
		env     []string
		warning string
	}{
		"none":                      {},
		"settings":                  {env: []string{"LEAF_SERVER=x", "LEAF_MAX_BATCH=1", "LEAF_CONFIG="}},
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
			if status != ExitOK || p.maxID != 0 {
				t.Errorf("status %d, --max-id is %d: %s", status, p.maxID, stderr)
			}
			want := ""
			if c.warning != "" {
				want = "warning: no command reads these variables, so they are ignored: " + c.warning + ". "
			}
			if (stderr != "") != (want != "") || !strings.HasPrefix(stderr, want) || strings.Count(stderr, "\n") > 1 || strings.Contains(stderr, "secret") {
				t.Errorf("stderr is %q, want %q", stderr, want)
			}
		})
	}
}
