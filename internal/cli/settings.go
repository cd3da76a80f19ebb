package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// The groups of settings, in the order of the help. A setting may also come from the environment
// and from a file. All other flags are arguments of one command, and count only on the command
// line: a variable that is left over must not move a max_id.
const (
	GroupStart      = "Start here"
	GroupNATS       = "NATS"
	GroupState      = "State"
	GroupSnowflakes = "Snowflakes"
	GroupLimits     = "Limits"
	GroupHTTP       = "HTTP"
	GroupLog        = "Log"
	GroupConnection = "Connection" // of a client command
	GroupCommand    = "Flags"      // the command's own flags, also those that are no settings
)

// Annotations of flags.
const (
	noteGroup    = "leaf_group"         // the group of a setting
	noteNATS     = "leaf_nats_variable" // the nats CLI's variable for the setting
	noteFromNATS = "leaf_from_nats"     // the value is that of this variable
	noteSecret   = "leaf_secret"        // messages must not show the value
)

func annotate(f *pflag.Flag, note, value string) {
	if f.Annotations == nil {
		f.Annotations = make(map[string][]string)
	}
	f.Annotations[note] = []string{value}
}

// noted returns an annotation of a flag, or "".
func noted(f *pflag.Flag, note string) string { return strings.Join(f.Annotations[note], "") }

// Settings adds the flags that add adds, as settings of a group. Their help names the variables
// that set them.
func Settings(fs *pflag.FlagSet, group string, add func(*pflag.FlagSet)) {
	of := pflag.NewFlagSet(group, pflag.ContinueOnError)
	add(of)
	of.VisitAll(func(f *pflag.Flag) {
		annotate(f, noteGroup, group)
		f.Usage += " [$" + strings.Join(append([]string{variable(f)}, f.Annotations[noteNATS]...), ", $") + "]"
	})
	fs.AddFlagSet(of)
}

// Number adds a flag with a number or a time from least to most. The name may have a letter after a
// comma: count,n.
func Number[T int | int64 | float64 | time.Duration](
	fs *pflag.FlagSet, value *T, name string, def, least, most T, usage string,
) {
	name, short, _ := strings.Cut(name, ",")
	switch p := any(value).(type) {
	case *int:
		fs.IntVarP(p, name, short, int(def), usage)
	case *int64:
		fs.Int64VarP(p, name, short, int64(def), usage)
	case *float64:
		fs.Float64VarP(p, name, short, float64(def), usage)
	case *time.Duration:
		fs.DurationVarP(p, name, short, time.Duration(def), usage)
	}
	f := fs.Lookup(name)
	if def == 0 {
		f.DefValue = "" // the help shows no default
	}
	f.Value = bounded{f.Value, func() error {
		switch {
		case *value < least:
			return fmt.Errorf("want at least %v", least)
		case !(*value <= most): // NaN is neither
			return fmt.Errorf("want at most %v", most)
		}
		return nil
	}}
}

// bounded is the value of a flag, with a check of what it is set to.
type bounded struct {
	pflag.Value
	check func() error
}

// Set implements [pflag.Value].
func (b bounded) Set(text string) error { return cmp.Or(b.Value.Set(text), b.check()) }

// given reports whether a flag has a value. An empty one counts as not given.
func given(f *pflag.Flag) bool { return f != nil && f.Changed && f.Value.String() != "" }

// FromNATS reports whether the value of a flag comes from a variable of the nats CLI: it is not
// meant for leaf alone.
func FromNATS(fs *pflag.FlagSet, name string) bool { return noted(fs.Lookup(name), noteFromNATS) != "" }

// Describe returns the values of all flags that are not secret.
func Describe(fs *pflag.FlagSet) map[string]string {
	values := make(map[string]string)
	fs.VisitAll(func(f *pflag.Flag) {
		if noted(f, noteSecret) == "" && f.Value.String() != "" && f.Name != "help" {
			values[f.Name] = f.Value.String()
		}
	})
	return values
}

// configure sets the settings that are not on the command line from the environment, or else from
// the file. It runs before every command.
func configure(cmd *cobra.Command) error {
	flags := cmd.Flags()
	err := apply(flags, func(f *pflag.Flag) (string, string, bool) {
		text, ok := os.LookupEnv(variable(f)) // an empty one is an empty value: LEAF_HTTP= turns HTTP off
		return variable(f), text, ok
	})
	if err != nil {
		return err
	}
	err = apply(flags, func(f *pflag.Flag) (string, string, bool) {
		text := os.Getenv(noted(f, noteNATS)) // an empty one is ignored, as the nats CLI does
		if text != "" {
			annotate(f, noteFromNATS, "true")
		}
		return noted(f, noteNATS), text, text != ""
	})
	if err != nil {
		return err
	}
	path := flags.Lookup("config").Value.String()
	values, err := readFile(path, cmd.Root())
	if err != nil {
		return err
	}
	err = apply(flags, func(f *pflag.Flag) (string, string, bool) {
		text, ok := values[f.Name]
		return path + ": " + f.Name, text, ok
	})
	if err != nil {
		return err
	}
	return readSecrets(flags)
}

// apply sets the settings that no stronger source has set. A secret and its file count as one.
func apply(flags *pflag.FlagSet, find func(*pflag.Flag) (where, value string, ok bool)) error {
	var open []*pflag.Flag
	flags.VisitAll(func(f *pflag.Flag) {
		if noted(f, noteGroup) != "" && !f.Changed && !given(beside(flags, f)) {
			open = append(open, f)
		}
	})
	for _, f := range open {
		where, value, ok := find(f)
		if !ok {
			continue
		}
		if err := set(f, value); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		f.Changed = true
	}
	return nil
}

// set sets a flag. Lists are split at commas.
func set(f *pflag.Flag, value string) error {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.Replace(SplitList(value))
	}
	return f.Value.Set(value)
}

// SplitList returns the items between commas, without the space around them.
func SplitList(text string) (items []string) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

var yamlLine = regexp.MustCompile(` line \d+`)

// readFile returns the values in a YAML file by key. One file may serve all commands below root, so
// it can have keys for flags of other commands.
func readFile(path string, root *cobra.Command) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	var nodes map[string]yaml.Node
	if err := yaml.Unmarshal(data, &nodes); err != nil { // the error can quote a password
		return nil, fmt.Errorf("%s%s: want YAML lines of the form \"flag: value\", each flag once", path,
			yamlLine.FindString(" "+err.Error()))
	}
	known, values := settingsOf(root), make(map[string]string)
	for _, key := range slices.Sorted(maps.Keys(nodes)) {
		f, node := known[key], nodes[key]
		if f == nil || key == "config" {
			return nil, fmt.Errorf("%s: unknown key %q near line %d: no command has such a setting", path, key, node.Line)
		}
		if values[key], err = text(f, node); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, key, err)
		}
	}
	return values, nil
}

// text is a value of the file as the environment would have it.
func text(f *pflag.Flag, node yaml.Node) (string, error) {
	_, isList := f.Value.(pflag.SliceValue)
	switch {
	case node.ShortTag() == "!!null":
		return "", errors.New(`nothing after the colon: "" is the empty value`)
	case node.Kind == yaml.SequenceNode && isList:
		var items []string
		err := node.Decode(&items)
		return strings.Join(items, ","), err
	case node.Kind != yaml.ScalarNode:
		return "", errors.New("want a single value")
	}
	return node.Value, nil
}

// settingsOf returns the settings of all commands.
func settingsOf(root *cobra.Command) map[string]*pflag.Flag {
	known := make(map[string]*pflag.Flag)
	for _, cmd := range tree(root) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if noted(f, noteGroup) != "" {
				known[f.Name] = f
			}
		})
	}
	return known
}

// kubernetes are the variables that Kubernetes makes of a service with the name leaf.
var kubernetes = regexp.MustCompile(`^LEAF_([A-Z0-9_]+_)?(SERVICE_(HOST|PORT)|PORT)(_|$)`)

// warnUnknown warns of LEAF_ variables that no command reads.
func warnUnknown(cmd *cobra.Command) {
	known := make(map[string]bool)
	for _, f := range settingsOf(cmd.Root()) {
		known[variable(f)] = true
	}
	var unknown []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "LEAF_") && !known[name] && !kubernetes.MatchString(name) {
			unknown = append(unknown, name)
		}
	}
	if slices.Sort(unknown); len(unknown) > 0 {
		warnf(cmd, "no command reads these variables, so they are ignored: %s. "+
			"`leaf COMMAND --help` lists the variables of a command", strings.Join(unknown, ", "))
	}
}

// variable is the environment variable that sets f.
func variable(f *pflag.Flag) string {
	return "LEAF_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}
