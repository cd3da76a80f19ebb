package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/cli"
)

// specFlags registers the flags of a spec. What is not given stays nil.
func specFlags(cmd *cobra.Command, spec *admin.TagSpec) {
	fs := cmd.Flags()
	optional(fs, &spec.Step, "step", "least `NUMBER` of IDs that a generator reserves at a time", atLeastOne)
	optional(fs, &spec.MaxID, "max-id", "next `ID` to be reserved; it only moves forward", parseID)
	optional(fs, &spec.Description, "description", "`TEXT`: what it is for", func(text string) (string, error) {
		return text, nil
	})
	optional(fs, &spec.Quota, "quota", "most `IDS/s` of all generators together, such as 1000/s, or none",
		idspace.ParseQuota)
	var burst *int64
	optional(fs, &burst, "burst", "`IDS` that may come at once after a pause, with --quota", atLeastOne)
	optional(fs, &spec.Outlast, "outlast", "`TIME` that IDs in memory should last, such as 15m, or none",
		func(text string) (d idspace.Duration, err error) {
			err = d.UnmarshalText([]byte(text))
			return d, err
		})
	optional(fs, &spec.Limit, "limit", "largest `ID`, such as 2147483647, or none", idspace.ParseLimit)
	fs.BoolVar(&spec.Force, "force", false, "also if most IDs of the tag are lost: see docs/tags.md#typos")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if burst == nil {
			return nil
		}
		if spec.Quota == nil || spec.Quota.PerSecond == 0 {
			return cli.Usagef("--burst is a part of a quota: give --quota IDS/s too")
		}
		spec.Quota.Burst = *burst
		return nil
	}
}

// optional adds a flag of a spec.
func optional[T any](fs *pflag.FlagSet, to **T, name, usage string, parse func(string) (T, error)) {
	fs.Func(name, usage, func(text string) error {
		value, err := parse(text)
		*to = &value
		return err
	})
}

// atLeastOne reads a number of IDs.
func atLeastOne(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("want a whole number from 1, not %q", text)
	}
	return n, nil
}

func newTagAddCmd() *cobra.Command {
	var f cli.Client
	var spec admin.TagSpec
	cmd := tagCommand(&f, &cobra.Command{
		Use:     "add TAG",
		Aliases: []string{"create"},
		Short:   "Create a tag",
		Long: `Create a tag. It starts at --max-id (default 1) with --step (default 1000). A tag
that was deleted before continues above all IDs that it ever had.`,
		Example: `  leaf tag add order
  leaf tag add invoice --order strict
  leaf tag add pin --opaque=d12
  leaf tag add legacy.users --max-id 7000001 --step 100
  leaf tag add seat --limit 2147483647`,
	}, "", func(s *cli.Session, tag string) (admin.TagRecord, error) {
		spec.Tag = tag
		t, err := s.Admin.CreateTag(s.Context(), spec)
		if errors.Is(err, bus.Exists) {
			err = fmt.Errorf("%w: to change it, use `leaf tag set %s`", err, tag)
		}
		return t, err
	})
	specFlags(cmd, &spec)
	cmd.Flags().Func("order", "`ORDER` of its IDs, for life: trend or strict (default trend)",
		func(text string) error {
			spec.Order = text
			_, err := allocator.ParseOrder(text)
			return err
		})
	cmd.Flags().Func("opaque", "make its IDs opaque, in this `DOMAIN`, for life: 63, 53 or d9 to d18",
		func(text string) error {
			spec.Opaque = text
			_, err := opaque.ParseDomain(text)
			return err
		})
	cmd.Flags().Lookup("opaque").NoOptDefVal = string(opaque.Bits63)
	return cmd
}

func newTagSetCmd() *cobra.Command {
	var f cli.Client
	var spec admin.TagSpec
	cmd := tagCommand(&f, &cobra.Command{
		Use:     "set TAG",
		Aliases: []string{"edit"},
		Short:   "Change a tag",
		Long: `Change a tag. When the command returns, the change is in force at every generator that
is heard. docs/tags.md says what quota, outlast and limit do.`,
		Example: `  leaf tag set order --max-id 5000000
  leaf tag set order --step 20000 --description 'orders of all shops'
  leaf tag set order --quota 1000/s --burst 5000
  leaf tag set order --outlast 1h
  leaf tag set order --quota none --limit 2147483647`,
	}, "", func(s *cli.Session, tag string) (admin.TagRecord, error) {
		spec.Tag = tag
		return s.Admin.UpdateTag(s.Context(), spec)
	})
	specFlags(cmd, &spec)
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if given := (admin.TagSpec{Force: spec.Force}); spec == given {
			return cli.Usagef("nothing to change: give --max-id, --step, --description, --quota, --outlast or --limit")
		}
		return check(cmd, args)
	}
	return cmd
}
