package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/pflag"
)

// mostSecret is the largest secret in a file, in bytes.
const mostSecret = 64 << 10

// SecretFile makes --NAME a secret, which no message shows, and adds --NAME-file beside it: all
// users of a machine can see a command line.
func SecretFile(fs *pflag.FlagSet, name string, path *string) {
	annotate(fs.Lookup(name), noteSecret, "true")
	fs.StringVar(path, name+"-file", "", "`FILE` with the value of --"+name)
}

// beside returns the flag of a secret's file, or the secret of that file; nil: f is neither.
func beside(fs *pflag.FlagSet, f *pflag.Flag) *pflag.Flag {
	if name, ok := strings.CutSuffix(f.Name, "-file"); ok {
		return fs.Lookup(name)
	}
	return fs.Lookup(f.Name + "-file")
}

// readSecrets sets secrets to what is in the files that flags name.
func readSecrets(fs *pflag.FlagSet) (err error) {
	fs.VisitAll(func(secret *pflag.Flag) {
		file := fs.Lookup(secret.Name + "-file")
		if err != nil || !given(file) {
			return
		}
		if given(secret) {
			err = fmt.Errorf("--%s and --%s: give one of them", secret.Name, file.Name)
			return
		}
		var value string
		if value, err = ReadSecret(file.Value.String()); err != nil {
			err = fmt.Errorf("--%s: %w", file.Name, err)
			return
		}
		err = set(secret, value)
	})
	return err
}

// ReadSecret returns the secret that a file holds.
func ReadSecret(path string) (string, error) {
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
		return "", fmt.Errorf("%s is empty, or larger than %d KiB: it must hold the secret and nothing else", path,
			mostSecret>>10)
	}
	return value, nil
}

// Reread returns a function that reads a secret again from its file; nil: it comes from no file, or
// from a pipe, which is read once.
func Reread(path string) func() (string, error) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return func() (string, error) { return ReadSecret(path) }
}
