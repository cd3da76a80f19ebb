package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// source says where a flag's value comes from.
type source string

const (
	fromDefault source = ""
	fromFlag    source = "flag"
	fromEnv     source = "LEAF_ variable"
	fromNATS    source = "NATS_ variable" // the nats CLI has it too: it is not meant for leaf alone
	fromFile    source = "file"
)

// Annotations of flags.
const (
	noteNATS       = "leaf_nats_variable" // the nats CLI's variable for the flag
	noteSecret     = "leaf_secret"        // messages must not show the value
	noteSource     = "leaf_source"        // where configure found the value
	noteGroup      = "leaf_group"         // the group of a setting; see [group]
	noteExclusive  = "leaf_beside"        // another flag that cannot be given with it
	noteSecretFile = "leaf_secret_of"     // the secret whose value is in the file that the flag names
	noteFrom       = "leaf_secret_from"   // the file that the secret's value comes from
)

func annotate(f *pflag.Flag, note, value string) {
	if f.Annotations == nil {
		f.Annotations = make(map[string][]string)
	}
	f.Annotations[note] = []string{value}
}

// origin returns where the value of cmd's flag comes from. f.Changed alone does not say that, because
// configure changes flags too. An empty value counts as not given.
func origin(cmd *cobra.Command, name string) source {
	f := cmd.Flags().Lookup(name)
	switch found := f.Annotations[noteSource]; {
	case !f.Changed || f.Value.String() == "":
		return fromDefault
	case found != nil:
		return source(found[0])
	default:
		return fromFlag
	}
}

// exclusive refuses two of cmd's flags together.
func exclusive(cmd *cobra.Command, one, other string) {
	cmd.MarkFlagsMutuallyExclusive(one, other) // for the completion
	annotate(cmd.Flags().Lookup(one), noteExclusive, other)
}

// checkExclusive replaces cobra's error about exclusive flags, which is hard to read.
func checkExclusive(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		for _, other := range f.Annotations[noteExclusive] {
			if f.Changed && flags.Changed(other) {
				err = usagef("--%s and --%s: give one of them", f.Name, other)
			}
		}
	})
	return err
}

// configure sets the settings that are not on the command line from the environment, or else from the
// file. It runs before every command.
func configure(cmd *cobra.Command) error {
	if err := applyEnvironment(cmd.Flags()); err != nil {
		return err
	}
	if err := applyFile(cmd); err != nil {
		return err
	}
	if err := readSecrets(cmd); err != nil {
		return err
	}
	// cobra checks these after this hook, but does not return usage errors.
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return asUsage(err)
	}
	return checkExclusive(cmd.Flags())
}

// applyFile sets cmd's flags from the file that --config names, if any. One
// file may serve all commands, so it can have keys for flags of other commands.
func applyFile(cmd *cobra.Command) error {
	path, err := cmd.Flags().GetString("config")
	if err != nil || path == "" {
		return err
	}
	values, err := readFile(path, cmd.Root())
	if err != nil {
		return err
	}
	for _, f := range unset(cmd.Flags()) {
		if value, given := values[f.Name]; given {
			if err := recordSource(f, fromFile, path+": "+f.Name, setNode(f, value)); err != nil {
				return err
			}
		}
	}
	return nil
}

// readFile returns the values in a YAML file by key. Each key must be a flag of a command below root.
func readFile(path string, root *cobra.Command) (values map[string]yaml.Node, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, usagef("--config: %w", err)
	}
	if err := yaml.Unmarshal(data, &values); err != nil {
		// The error can quote the file, and with it a password. Show only the line number.
		where := path
		if _, line, ok := strings.Cut(err.Error(), "line "); ok {
			number, _, _ := strings.Cut(line, ":")
			where += ", line " + number
		}
		return nil, usagef("%s: want YAML lines of the form \"flag: value\", each flag once", where)
	}
	known := fileKeys(root)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !known[key] {
			return nil, usagef("%s: unknown key %q near line %d: no command has such a setting", path, key, values[key].Line)
		}
	}
	return values, nil
}

// fileKeys returns the settings of all commands, without --config.
func fileKeys(root *cobra.Command) map[string]bool {
	known := make(map[string]bool)
	for _, cmd := range tree(root) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if isSetting(f) && f.Name != "config" {
				known[f.Name] = true
			}
		})
	}
	return known
}

// unset returns the settings that nothing has set yet.
func unset(flags *pflag.FlagSet) []*pflag.Flag {
	var list []*pflag.Flag
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Changed && isSetting(f) {
			list = append(list, f)
		}
	})
	return list
}

// setText sets f to text. Lists are split at commas.
func setText(f *pflag.Flag, text string) error {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.Replace(splitList(text))
	}
	return f.Value.Set(text)
}

// splitList returns the items between commas, without the space around them.
func splitList(text string) (items []string) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// setNode sets f to a YAML value.
func setNode(f *pflag.Flag, value yaml.Node) error {
	list, isList := f.Value.(pflag.SliceValue)
	switch {
	case value.ShortTag() == "!!null":
		return errors.New(`nothing after the colon: "" is the empty value`)
	case value.Kind == yaml.ScalarNode:
		return setText(f, value.Value)
	case value.Kind == yaml.SequenceNode && isList:
		items := make([]string, len(value.Content))
		for i, item := range value.Content {
			items[i] = item.Value
		}
		return list.Replace(items)
	case isList:
		return errors.New("want a list")
	default:
		return errors.New("want a single value")
	}
}

// recordSource ends an attempt to set f, which returned err. It notes where the value comes from, or returns a
// usage error that names the place.
func recordSource(f *pflag.Flag, from source, where string, err error) error {
	if err != nil {
		return usagef("%s: %w", where, badValue(f, err))
	}
	f.Changed = true
	annotate(f, noteSource, string(from))
	return nil
}

// badValue returns the error about a value for f, without secrets and without the terms of Go's parsers.
func badValue(f *pflag.Flag, err error) error {
	number, isNumber := errors.AsType[*strconv.NumError](err)
	switch {
	case isSecret(f):
		err = errors.New("it is not shown here, as it may hold a secret")
	case isNumber && errors.Is(err, strconv.ErrRange):
		err = fmt.Errorf("%s is out of range", number.Num)
	case isNumber && f.Value.Type() == "bool":
		err = fmt.Errorf("%q is not true or false", number.Num)
	case isNumber && f.Value.Type() == "float64":
		err = fmt.Errorf("%q is not a number", number.Num)
	case isNumber:
		err = fmt.Errorf("%q is not a whole number", number.Num)
	case f.Value.Type() == "duration":
		err = fmt.Errorf("%s: want one such as 500ms, 10s or 1h30m", strings.TrimPrefix(err.Error(), "time: "))
	}
	return fmt.Errorf("bad value for --%s: %w", f.Name, err)
}
