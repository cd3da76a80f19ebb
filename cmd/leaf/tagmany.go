package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/cli"
)

const (
	mostFailures = 20 // are printed. With --json the result has all
	manyAtOnce   = 16 // tags are changed at a time
	// missingTimeout is how long a generator may take to find out which tags are missing: it may
	// have to read a million names.
	missingTimeout = 30 * time.Second
)

// failedTag is a tag that a command for many tags could not change.
type failedTag struct {
	Tag   string `json:"tag"`
	Error string `json:"error"`
}

// forMany calls do for all, manyAtOnce at a time, and then done for each one that did not fail, in
// their order. The problem says what failed, or that the command was interrupted; word is what did
// not happen to these tags.
func forMany[T, R any](s *cli.Session, all []T, word string, name func(T) string,
	do func(context.Context, T) (R, error), done func(R),
) (failed []failedTag, problem error) {
	failed = []failedTag{} // in JSON [], not null
	var problems []error
	count := 0
	for chunk := range slices.Chunk(all, manyAtOnce) {
		results, errs := make([]R, len(chunk)), make([]error, len(chunk))
		var working sync.WaitGroup
		for i, of := range chunk {
			working.Go(func() { results[i], errs[i] = do(s.Context(), of) })
		}
		working.Wait()
		for i, of := range chunk {
			switch {
			case errs[i] == nil:
				count++
				done(results[i])
			case s.Context().Err() != nil:
				return failed, fmt.Errorf("%w: %d of %d tags were %s. Repeat the command", s.Failed(errs[i]), count, len(all),
					word)
			default:
				failed = append(failed, failedTag{name(of), errs[i].Error()})
				if !strings.HasPrefix(errs[i].Error(), name(of)+": ") {
					errs[i] = fmt.Errorf("%s: %w", name(of), errs[i])
				}
				problems = append(problems, errs[i])
			}
		}
	}
	if len(failed) > 0 {
		problem = fmt.Errorf("%d of %d tags were not %s (--json lists all):\n%w", len(failed), len(all), word,
			errors.Join(problems[:min(len(failed), mostFailures)]...))
	}
	return failed, problem
}

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

// warnUnserved warns of tags that a command for all leaves out.
func warnUnserved(s *cli.Session, all admin.TagsPage) {
	if n := len(all.Unserved); n > 0 {
		s.Warnf("tags that are not served are left out: %d (`leaf tag list` shows why)", n)
	}
}

// warnUnheard warns of generators that may not know of a change.
func warnUnheard(s *cli.Session, nodes []string) {
	if slices.Sort(nodes); len(nodes) > 0 {
		s.Warnf("these generators fell silent in the last hour: %s. One that still runs may hand out IDs as before "+
			"this change until it reaches NATS again: stop it. Ignore those that were killed",
			strings.Join(slices.Compact(nodes), ", "))
	}
}

// warnStrict says what an operator must do about strict tags after a restore.
func warnStrict(s *cli.Session, tags int) {
	if tags > 0 {
		s.Warnf("strict tags: %d. After a restore of JetStream this command is not enough for them: "+
			"use `leaf tag set TAG --max-id` for each one, with an ID above all that your services got", tags)
	}
}

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
		s.Warnf("and %d more (--json lists them)", more)
	}
}

// commandFor is the command that says where a missing tag begins. At 1 a tag is new, which is
// refused while records are lost.
func commandFor(t admin.KnownTag) string {
	kind, end, hint := "", fmt.Sprint(max(t.End, 2)), ""
	switch {
	case t.Order == idspace.OrderStrict:
		kind, end, hint = " --order strict", "N", ", with N above all IDs that your services got"
	case t.Opaque != "":
		kind = " --opaque=" + t.Opaque
	case t.Order == "opaque":
		kind, hint = " --opaque=DOMAIN", ", with the domain that it had"
	case t.Order == "":
		hint = ", with --order or --opaque if it had that: nobody knows its kind"
	}
	return fmt.Sprintf("`leaf tag add %s%s --max-id %s`%s", t.Tag, kind, end, hint)
}
