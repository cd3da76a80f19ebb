package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// The groups of settings, in the order of the help. A setting may also come from the environment and from a file. All
// other flags are arguments of one command, and count only on the command line: a variable that is left over must not
// move a max_id.
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

// Source says where the value of a setting comes from.
type Source string

// The sources, the strongest first.
const (
	FromFlag    Source = "flag"
	FromEnv     Source = "LEAF_ variable"
	FromNATS    Source = "NATS_ variable" // the nats CLI has it too: it is not meant for leaf alone
	FromFile    Source = "file"
	FromDefault Source = ""
)

// Annotations of flags.
const (
	noteGroup  = "leaf_group"         // the group of a setting
	noteNATS   = "leaf_nats_variable" // the nats CLI's variable for the setting
	noteSource = "leaf_source"        // where configure found the value
	noteSecret = "leaf_secret"        // messages must not show the value
	noteFile   = "leaf_secret_file"   // the file that the secret comes from
)

func annotate(f *pflag.Flag, note, value string) {
	if f.Annotations == nil {
		f.Annotations = make(map[string][]string)
	}
	f.Annotations[note] = []string{value}
}

// noted returns an annotation of a flag, or "".
func noted(f *pflag.Flag, note string) string { return strings.Join(f.Annotations[note], "") }

// Settings makes flags settings of a group.
func Settings(fs *pflag.FlagSet, group string, names ...string) {
	for _, name := range names {
		annotate(fs.Lookup(name), noteGroup, group)
	}
}

func isSetting(f *pflag.Flag) bool { return noted(f, noteGroup) != "" }

// OriginOf returns where the value of a flag comes from. An empty value counts as not given.
func OriginOf(fs *pflag.FlagSet, name string) Source {
	switch f := fs.Lookup(name); {
	case !f.Changed || f.Value.String() == "":
		return FromDefault
	case noted(f, noteSource) != "":
		return Source(noted(f, noteSource))
	}
	return FromFlag
}

// Describe returns the values of all flags that are not secret.
func Describe(fs *pflag.FlagSet) map[string]string {
	values := make(map[string]string)
	fs.VisitAll(func(f *pflag.Flag) {
		if !isSecret(f) && f.Value.String() != "" && f.Name != "help" {
			values[f.Name] = f.Value.String()
		}
	})
	return values
}

// configure sets the settings that are not on the command line from the environment, or else from the file. It runs
// before every command.
func configure(cmd *cobra.Command) error {
	flags := cmd.Flags()
	if err := apply(flags, FromEnv, func(f *pflag.Flag) (string, yaml.Node, bool) {
		text, given := os.LookupEnv(variable(f)) // an empty one is an empty value: LEAF_HTTP= turns HTTP off
		return variable(f), scalar(text), given
	}); err != nil {
		return err
	}
	if err := apply(flags, FromNATS, func(f *pflag.Flag) (string, yaml.Node, bool) {
		text := os.Getenv(noted(f, noteNATS)) // an empty one is ignored, as the nats CLI does
		return noted(f, noteNATS), scalar(text), text != ""
	}); err != nil {
		return err
	}
	path := flags.Lookup("config").Value.String()
	values, err := readFile(path, cmd.Root())
	if err != nil {
		return err
	}
	if err := apply(flags, FromFile, func(f *pflag.Flag) (string, yaml.Node, bool) {
		value, given := values[f.Name]
		return path + ": " + f.Name, value, given
	}); err != nil {
		return err
	}
	if err := readSecrets(cmd); err != nil {
		return err
	}
	if err := cmd.ValidateFlagGroups(); err != nil {
		return fmt.Errorf("%w: give one of them", err)
	}
	return nil
}

func scalar(text string) yaml.Node {
	return yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

// apply sets the settings that no stronger source has set. A secret and its file count as one.
func apply(
	flags *pflag.FlagSet, from Source, find func(*pflag.Flag) (where string, value yaml.Node, given bool),
) error {
	var open []*pflag.Flag
	flags.VisitAll(func(f *pflag.Flag) {
		other := beside(flags, f)
		if isSetting(f) && !f.Changed && (other == nil || OriginOf(flags, other.Name) == FromDefault) {
			open = append(open, f)
		}
	})
	for _, f := range open {
		where, value, given := find(f)
		if !given {
			continue
		}
		if err := set(f, value); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		f.Changed = true
		annotate(f, noteSource, string(from))
	}
	return nil
}

// set sets a flag to a value of the file, or of the environment. Lists in text are split at commas.
func set(f *pflag.Flag, value yaml.Node) error {
	list, isList := f.Value.(pflag.SliceValue)
	switch {
	case value.ShortTag() == "!!null":
		return errors.New(`nothing after the colon: "" is the empty value`)
	case value.Kind == yaml.SequenceNode && isList:
		items := make([]string, len(value.Content))
		for i, item := range value.Content {
			items[i] = item.Value
		}
		return list.Replace(items)
	case value.Kind != yaml.ScalarNode:
		return errors.New("want a single value")
	case isList:
		return list.Replace(SplitList(value.Value))
	}
	if err := f.Value.Set(value.Value); err != nil {
		return badValue(f, value.Value, err)
	}
	return nil
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

// badValue is the error about a value of a flag. It does not show secrets.
func badValue(f *pflag.Flag, value string, err error) error {
	want := map[string]string{
		"bool": "true or false", "duration": "a time such as 500ms, 10s or 1h30m", "float64": "a number",
		"int": "a whole number", "int64": "a whole number",
	}[f.Value.Type()]
	switch {
	case isSecret(f):
		err = errors.New("it is not shown here, as it may hold a secret")
	case want != "":
		err = fmt.Errorf("want %s, not %q", want, value)
	}
	return fmt.Errorf("bad value for --%s: %w", f.Name, err)
}

// flagError is an error about the command line in the words of those about the other sources.
func flagError(_ *cobra.Command, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return badValue(bad.GetFlag(), bad.GetValue(), errors.Unwrap(bad))
	}
	return err
}

var yamlLine = regexp.MustCompile(` line \d+`)

// readFile returns the values in a YAML file by key. One file may serve all commands below root, so it can have keys
// for flags of other commands.
func readFile(path string, root *cobra.Command) (values map[string]yaml.Node, err error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if err := yaml.Unmarshal(data, &values); err != nil { // the error can quote a password
		return nil, fmt.Errorf("%s%s: want YAML lines of the form \"flag: value\", each flag once", path,
			yamlLine.FindString(" "+err.Error()))
	}
	known := settingsOf(root)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if f := known[key]; f == nil || key == "config" {
			return nil, fmt.Errorf("%s: unknown key %q near line %d: no command has such a setting", path, key,
				values[key].Line)
		}
	}
	return values, nil
}

// settingsOf returns the settings of all commands.
func settingsOf(root *cobra.Command) map[string]*pflag.Flag {
	known := make(map[string]*pflag.Flag)
	for _, cmd := range tree(root) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if isSetting(f) {
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
		Warnf(cmd, "no command reads these variables, so they are ignored: %s. "+
			"`leaf COMMAND --help` lists the variables of a command", strings.Join(unknown, ", "))
	}
}

// document adds the variables that set f to its help.
func document(f *pflag.Flag) {
	if isSetting(f) {
		f.Usage += " [$" + strings.Join(append([]string{variable(f)}, f.Annotations[noteNATS]...), ", $") + "]"
	}
}

// variable is the environment variable that sets f.
func variable(f *pflag.Flag) string {
	return "LEAF_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}
