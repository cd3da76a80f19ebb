package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

// tagFields are the flags for the fields of a tag.
type tagFields struct {
	step, maxID int64
	description string
	// Only of a new tag.
	order, opaque string
	// As text, because "none" removes a rule.
	quota, burst, outlast, limit string
	force                        bool

	rules allocator.RulesChange // as check has read them
}

func (f *tagFields) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Int64Var(&f.step, "step", 0, "least number of IDs that a generator reserves at a time")
	fs.Int64Var(&f.maxID, "max-id", 0, "next `ID` to be reserved; it only moves forward")
	fs.StringVar(&f.description, "description", "", "what it is for")
	fs.StringVar(&f.quota, "quota", "", "most `IDS/s` of all generators together, such as 1000/s, or none")
	fs.StringVar(&f.burst, "burst", "", "`IDS` that may come at once after a pause, with --quota (default those of one second)")
	fs.StringVar(&f.outlast, "outlast", "", "`TIME` that IDs in memory should last, such as 15m, or none: as --outlast of leaf serve")
	fs.StringVar(&f.limit, "limit", "", "largest `ID`, such as 2147483647, or none")
	registerForce(fs, &f.force)
}

// registerForce registers the flag for changes that look like a typo.
func registerForce(fs *pflag.FlagSet, force *bool) {
	fs.BoolVar(force, "force", false, "also if most IDs of the tag are lost: see docs/rules.md#typos")
}

// check reads the flags, and refuses what no generator can read.
func (f *tagFields) check(cmd *cobra.Command, _ []string) error {
	if cmd.Flags().Changed("max-id") && f.maxID < 1 {
		return usagef("--max-id is %d, not at least 1", f.maxID)
	}
	if cmd.Flags().Changed("opaque") {
		if _, err := opaque.ParseDomain(f.opaque); err != nil {
			return usagef("--opaque: %v", err)
		}
	}
	var err error
	number := func(name, text string) int64 {
		n, bad := int64(0), error(nil)
		if text != "none" {
			if n, bad = strconv.ParseInt(text, 10, 64); bad != nil || n < 1 {
				err = usagef("--%s is %q: want a whole number, 1 or more, or none", name, text)
			}
		}
		return n
	}
	changed := cmd.Flags().Changed
	if changed("quota") {
		f.rules.Quota = &allocator.Quota{PerSecond: number("quota", strings.TrimSuffix(f.quota, "/s"))}
	}
	if changed("burst") {
		if f.rules.Quota == nil || f.rules.Quota.PerSecond == 0 {
			return usagef("--burst is a part of a quota: give --quota too")
		}
		f.rules.Quota.Burst = number("burst", f.burst)
	}
	if changed("outlast") {
		var d time.Duration
		if f.outlast != "none" {
			var bad error
			if d, bad = time.ParseDuration(f.outlast); bad != nil || d <= 0 {
				return usagef("--outlast is %q: want a time such as 15m, or none", f.outlast)
			}
		}
		f.rules.Outlast = (*allocator.Duration)(&d)
	}
	if changed("limit") {
		n := number("limit", f.limit)
		f.rules.Limit = (*allocator.Limit)(&n)
	}
	return err
}

// given returns the fields that were given, nil for the others. Call check before.
func (f *tagFields) given(cmd *cobra.Command) (u admin.TagUpdate) {
	u.RulesChange = f.rules
	if cmd.Flags().Changed("step") {
		u.Step = &f.step
	}
	if cmd.Flags().Changed("max-id") {
		u.MaxID = (*bus.ID)(&f.maxID)
	}
	if cmd.Flags().Changed("description") {
		u.Description = &f.description
	}
	return u
}
