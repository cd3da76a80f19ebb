package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The groups of settings. A setting may also come from the environment and from a file. All other flags are arguments
// of one command, and count only on the command line: a variable that is left over must not move a max_id.
const (
	groupStart      = "Start here"
	groupNATS       = "NATS"
	groupState      = "State"
	groupSnowflakes = "Snowflakes"
	groupLimits     = "Limits"
	groupHTTP       = "HTTP"
	groupLog        = "Log"
	groupConnection = "Connection" // of a client command
	groupOutput     = ""           // among the command's own flags
)

// group makes flags settings of a group.
func group(fs *pflag.FlagSet, title string, names ...string) {
	for _, name := range names {
		annotate(fs.Lookup(name), noteGroup, title)
	}
}

func isSetting(f *pflag.Flag) bool { return f.Annotations[noteGroup] != nil }

// applyEnvironment sets settings from their LEAF_ variables, or else from those of
// the nats CLI. An empty LEAF_ variable is an empty value: LEAF_HTTP= turns HTTP
// off. An empty NATS_ variable is ignored, as the nats CLI does.
func applyEnvironment(flags *pflag.FlagSet) error {
	for _, f := range unset(flags) {
		from, name := fromEnv, variable(f)
		text, given := os.LookupEnv(name)
		if other := f.Annotations[noteNATS]; !given && other != nil {
			from, name = fromNATS, other[0]
			text = os.Getenv(name)
			given = text != ""
		}
		if !given {
			continue
		}
		if err := recordSource(f, from, name, setText(f, text)); err != nil {
			return err
		}
	}
	return nil
}

// kubernetes are the variables that Kubernetes makes of a service with the name leaf.
var kubernetes = regexp.MustCompile(`^LEAF_([A-Z0-9_]+_)?(SERVICE_(HOST|PORT)|PORT)(_|$)`)

// warnUnknown warns of LEAF_ variables that no command reads.
func warnUnknown(cmd *cobra.Command) {
	known := make(map[string]bool)
	for _, c := range tree(cmd.Root()) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { known[variable(f)] = known[variable(f)] || isSetting(f) })
	}
	var unknown []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "LEAF_") && !known[name] && !kubernetes.MatchString(name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		fmt.Fprintf(cmd.ErrOrStderr(), "leaf: warning: no command reads these variables, so they are ignored: %s. "+
			"`leaf COMMAND --help` lists the variables of a command\n", strings.Join(unknown, ", "))
	}
}

// documentVariables adds the variables that set f to its help.
func documentVariables(f *pflag.Flag) {
	if !isSetting(f) {
		return
	}
	names := append([]string{variable(f)}, f.Annotations[noteNATS]...)
	f.Usage += " [$" + strings.Join(names, ", $") + "]"
}

// variable is the environment variable that sets f.
func variable(f *pflag.Flag) string {
	return "LEAF_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}
