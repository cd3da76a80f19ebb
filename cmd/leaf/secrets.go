package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mostSecret is the largest secret in a file, in bytes.
const mostSecret = 64 << 10

// markSecret keeps the values of these flags out of all messages.
func markSecret(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		annotate(flags.Lookup(name), noteSecret, "true")
	}
}

func isSecret(f *pflag.Flag) bool { return f.Annotations[noteSecret] != nil }

// addSecretFile adds the flag --NAME-file beside a secret flag: a command line can be seen by all users of a machine.
func addSecretFile(fs *pflag.FlagSet, title, name string) {
	fs.String(name+"-file", "", "`FILE` with the value of --"+name)
	annotate(fs.Lookup(name+"-file"), noteSecretFile, name)
	group(fs, title, name+"-file")
}

// readSecrets sets secrets to what is in the files that flags name.
func readSecrets(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if of := f.Annotations[noteSecretFile]; of != nil && err == nil {
			err = readSecret(cmd, f, cmd.Flags().Lookup(of[0]))
		}
	})
	return err
}

// readSecret sets a secret from its file, unless the secret itself comes from a source that beats the file's.
func readSecret(cmd *cobra.Command, file, secret *pflag.Flag) error {
	from, path := origin(cmd, file.Name), file.Value.String()
	strength := func(of source) int {
		return slices.Index([]source{fromDefault, fromFile, fromNATS, fromEnv, fromFlag}, of)
	}
	switch beside := strength(origin(cmd, secret.Name)); {
	case from == fromDefault || beside > strength(from):
		return nil
	case beside == strength(from):
		return usagef("--%s and --%s: give one of them", secret.Name, file.Name)
	}
	value, err := readSecretFile(path)
	if err != nil {
		return usagef("--%s: %w", file.Name, err)
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o004 != 0 && runtime.GOOS != "windows" {
		fmt.Fprintf(cmd.ErrOrStderr(), "leaf: warning: all users of this machine can read the secret in %[1]s (--%[2]s): chmod 600 %[1]s\n", path, file.Name)
	}
	annotate(secret, noteFrom, path)
	return recordSource(secret, from, "--"+file.Name, setText(secret, value))
}

// readSecretFile returns the secret that a file holds.
func readSecretFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostSecret+1))
	if err != nil {
		return "", err
	}
	value := strings.TrimRightFunc(string(text), unicode.IsSpace)
	if value == "" || len(text) > mostSecret {
		return "", fmt.Errorf("%s is empty, or larger than %d KiB: it must hold the secret and nothing else", path, mostSecret>>10)
	}
	return value, nil
}

// rereadSecret returns a function that reads a secret again from its file; nil: it comes from no file, or from a
// pipe, which is read once.
func rereadSecret(secret *pflag.Flag) func() (string, error) {
	path := secretFrom(secret)
	if info, err := os.Stat(path); path == "" || err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return func() (string, error) { return readSecretFile(path) }
}

// secretFrom returns the file that a secret's value comes from; empty: from no file.
func secretFrom(secret *pflag.Flag) string {
	if secret == nil || secret.Annotations[noteFrom] == nil {
		return ""
	}
	return secret.Annotations[noteFrom][0]
}
