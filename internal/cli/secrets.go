package cli

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mostSecret is the largest secret in a file, in bytes.
const mostSecret = 64 << 10

// Secret keeps the value of a flag out of all messages.
func Secret(f *pflag.Flag) { annotate(f, noteSecret, "true") }

func isSecret(f *pflag.Flag) bool { return noted(f, noteSecret) != "" }

// SecretFile adds the setting --NAME-file beside the secret --NAME: all users of a machine can see a command line.
func SecretFile(fs *pflag.FlagSet, group, name string) {
	Secret(fs.Lookup(name))
	fs.String(name+"-file", "", "`FILE` with the value of --"+name)
	Settings(fs, group, name, name+"-file")
}

// beside returns the flag of a secret's file, or the secret of that file; nil: f is neither.
func beside(fs *pflag.FlagSet, f *pflag.Flag) *pflag.Flag {
	if isSecret(f) {
		return fs.Lookup(f.Name + "-file")
	}
	if of := fs.Lookup(strings.TrimSuffix(f.Name, "-file")); of != nil && of != f && isSecret(of) {
		return of
	}
	return nil
}

// readSecrets sets secrets to what is in the files that flags name.
func readSecrets(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(secret *pflag.Flag) {
		file := beside(cmd.Flags(), secret)
		if err != nil || file == nil || !isSecret(secret) || file.Value.String() == "" {
			return
		}
		path, value := file.Value.String(), ""
		if OriginOf(cmd.Flags(), secret.Name) != FromDefault {
			err = fmt.Errorf("--%s and --%s: give one of them", secret.Name, file.Name)
			return
		}
		if value, err = readSecret(path); err != nil {
			err = fmt.Errorf("--%s: %w", file.Name, err)
			return
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o004 != 0 &&
			runtime.GOOS != "windows" {
			Warnf(cmd, "all users of this machine can read the secret in %[1]s (--%[2]s): chmod 600 %[1]s", path,
				file.Name)
		}
		err = set(secret, scalar(value))
		annotate(secret, noteFile, path)
		annotate(secret, noteSource, string(OriginOf(cmd.Flags(), file.Name)))
		secret.Changed = true
	})
	return err
}

// readSecret returns the secret that a file holds.
func readSecret(path string) (string, error) {
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

// Reread returns a function that reads a secret again from its file; nil: it comes from no file, or from a pipe, which
// is read once.
func Reread(secret *pflag.Flag) func() (string, error) {
	if secret == nil {
		return nil
	}
	path := noted(secret, noteFile)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return func() (string, error) { return readSecret(path) }
}
