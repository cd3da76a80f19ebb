package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A secret comes from a file, whose white space at the end is cut. The stronger source counts.
func TestSecretFile(t *testing.T) {
	const first, other = "hunter2", "another"
	for name, c := range map[string]struct {
		args   []string
		env    string // NAME=value
		config string
		want   string // the password
		stderr string
		status int
	}{
		"flag":                      {args: []string{"--password-file", "secret"}, want: first},
		"environment":               {env: "LEAF_PASSWORD_FILE=secret", want: first},
		"empty":                     {args: []string{"--password-file", "", "--password", other}, want: other},
		"beats the environment":     {args: []string{"--password-file", "secret"}, env: "LEAF_PASSWORD=" + other, want: first},
		"beaten by NATS_":           {config: "password-file: secret", env: "NATS_PASSWORD=" + other, want: other},
		"beaten by the environment": {config: "password-file: secret", env: "LEAF_PASSWORD=" + other, want: other},
		"beaten by a flag":          {args: []string{"--password", other}, env: "LEAF_PASSWORD_FILE=secret", want: other},
		"both":                      {args: []string{"--password-file", "secret", "--password", other}, stderr: "--password and --password-file: give one of them", status: ExitUsage},
		"missing":                   {args: []string{"--password-file", "none"}, stderr: "--password-file: open none: ", status: ExitUsage},
		"nothing in it":             {args: []string{"--password-file", "blank"}, stderr: "blank is empty", status: ExitUsage},
		"too large":                 {args: []string{"--password-file", "large"}, stderr: "larger than 64 KiB", status: ExitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			cleanEnv(t)
			writeConfig(t, c.config)
			for file, text := range map[string]string{"secret": first + " \r\n\n", "blank": " \n",
				"large": strings.Repeat("x", mostSecret+1)} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if name, value, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(name, value)
			}
			p := &probe{}
			p.do = func(cmd *cobra.Command) error {
				if shown := Describe(cmd.Flags()); shown["password"] != "" || shown["timeout"] == "" {
					t.Errorf("the configuration is %v", shown)
				}
				return nil
			}
			status, _, stderr := runProbe(t, p, append([]string{"probe", "x", "--config", "leaf.yaml"}, c.args...)...)
			if status != c.status || status == ExitOK && p.conn.Password != c.want || !strings.Contains(stderr, c.stderr) || (stderr != "") != (c.stderr != "") {
				t.Errorf("status %d, the password is %q, stderr %q; want %d, %q, %q", status, p.conn.Password, stderr, c.status, c.want, c.stderr)
			}
			if strings.Contains(stderr, first) || strings.Contains(stderr, other) {
				t.Errorf("stderr %q shows the secret", stderr)
			}
		})
	}
}
