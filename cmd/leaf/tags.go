package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/cli"
)

// allTags returns all pages of the tags as one.
func allTags(ctx context.Context, c *admin.Client, req admin.PageRequest) (admin.TagsPage, error) {
	all := admin.TagsPage{Tags: []admin.TagRecord{}}
	for more := true; more; more = req.After != "" {
		page, err := c.Tags(ctx, req)
		if err != nil {
			return all, err
		}
		all.Tags, all.Unserved = append(all.Tags, page.Tags...), append(all.Unserved, page.Unserved...)
		req.After = page.Next
	}
	return all, nil
}

// warnUnheard warns of generators that may not know of a change.
func warnUnheard(s *cli.Session, nodes []string) {
	if slices.Sort(nodes); len(nodes) > 0 {
		s.Warnf("these generators fell silent in the last hour: %s. One that still runs may hand out IDs as before "+
			"this change until it reaches NATS again: stop it. Ignore those that were killed",
			strings.Join(slices.Compact(nodes), ", "))
	}
}

func printTags(w io.Writer, tags ...admin.TagRecord) error {
	columns := []struct {
		head  string
		shown bool
		of    func(admin.TagRecord) string
	}{
		{"TAG", true, func(t admin.TagRecord) string { return t.Tag }},
		{"MAX_ID", true, func(t admin.TagRecord) string { return strconv.FormatInt(int64(t.MaxID), 10) }},
		{"STEP", true, func(t admin.TagRecord) string { return cmp.Or(t.Order, strconv.FormatInt(t.Step, 10)) }},
		{"OPAQUE", slices.ContainsFunc(tags, func(t admin.TagRecord) bool { return t.Opaque != "" }),
			func(t admin.TagRecord) string { return t.Opaque }},
		{"UPDATED", true, func(t admin.TagRecord) string { return cli.Time(t.Updated) }},
		{"RULES", slices.ContainsFunc(tags, func(t admin.TagRecord) bool { return t.TagRules != (admin.TagRules{}) }),
			func(t admin.TagRecord) string { return rulesOf(t.TagRules) }},
		{"DESCRIPTION", true, func(t admin.TagRecord) string { return t.Description }},
	}
	var head []string
	rows := make([][]string, len(tags))
	for _, c := range columns {
		if !c.shown {
			continue
		}
		head = append(head, c.head)
		for i, t := range tags {
			rows[i] = append(rows[i], c.of(t))
		}
	}
	return cli.PrintTable(w, head, rows)
}

// rulesOf is what a list shows as the rules of a tag.
func rulesOf(r admin.TagRules) string {
	var parts []string
	if r.Paused {
		parts = append(parts, "paused")
	}
	if r.Quota.PerSecond > 0 {
		parts = append(parts, fmt.Sprintf("quota %d/s burst %d", r.Quota.PerSecond, r.Quota.Burst))
	}
	if r.Outlast > 0 {
		parts = append(parts, fmt.Sprintf("outlast %v", r.Outlast))
	}
	if r.Limit > 0 {
		parts = append(parts, fmt.Sprintf("limit %d", r.Limit))
	}
	return strings.Join(parts, ", ")
}

// warnStrict says what an operator must do about strict tags after a restore.
func warnStrict(s *cli.Session, tags int) {
	if tags > 0 {
		s.Warnf("strict tags: %d. After a restore of JetStream this command is not enough for them: "+
			"use `leaf tag set TAG --max-id` for each one, with an ID above all that your services got", tags)
	}
}

// missingTimeout is how long a generator may take to find out which tags are missing: it may have to read a million
// names.
const missingTimeout = 30 * time.Second

// missingTags asks a generator which tags are missing.
func missingTags(ctx context.Context, c *admin.Client) (admin.MissingTags, error) {
	ctx, cancel := context.WithTimeout(ctx, missingTimeout)
	defer cancel()
	return c.MissingTags(ctx)
}

// warnMissing names missing tags, and for each one the command that says where it begins.
func warnMissing(s *cli.Session, missing admin.MissingTags) {
	shown := missing.Tags[:min(len(missing.Tags), mostFailures)]
	for _, t := range shown {
		s.Warnf("%s is missing, and IDs below %d are in use: %s", t.Tag, t.End, commandFor(t))
	}
	if more := len(missing.Tags) - len(shown) + missing.More; more > 0 {
		fmt.Fprintf(s.Cmd.ErrOrStderr(), "and %d more (--json lists them)\n", more)
	}
}

// commandFor is the command that says where a missing tag begins.
func commandFor(t admin.MissingTag) string {
	t.End = max(t.End, 2) // 1 is what a new tag begins at, which is refused while records are lost
	switch {
	case t.Order == bus.OrderStrict:
		return fmt.Sprintf("`leaf tag add %s --order strict --max-id N`, with N above all IDs that your services "+
			"got", t.Tag)
	case t.Opaque != "":
		return fmt.Sprintf("`leaf tag add %s --opaque=%s --max-id %d`", t.Tag, t.Opaque, t.End)
	case t.Order == "opaque":
		return fmt.Sprintf("`leaf tag add %s --opaque=DOMAIN --max-id %d`, with the domain that it had", t.Tag, t.End)
	case t.Order == "":
		return fmt.Sprintf("`leaf tag add %s --max-id %d`, with --order or --opaque if it had that: nobody knows "+
			"its kind", t.Tag, t.End)
	}
	return fmt.Sprintf("`leaf tag add %s --max-id %d`", t.Tag, t.End)
}
