package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/cli"
)

const (
	mostFailures = 20 // are printed. With --json the result has all
	manyAtOnce   = 16 // tags are changed at a time
	// missingTimeout is how long a generator may take to find out which tags are missing: it may have to read a million
	// names.
	missingTimeout = 30 * time.Second
)

// failedTag is a tag that a command for many tags could not change.
type failedTag struct {
	Tag   string `json:"tag"`
	Error string `json:"error"`
}

// tagFailures collects the failures of a command for many tags.
type tagFailures struct {
	Failed []failedTag `json:"failed"`

	errs []error
}

func (f *tagFailures) add(tag string, err error) {
	f.Failed = append(f.Failed, failedTag{tag, err.Error()})
	f.errs = append(f.errs, fmt.Errorf("%s: %w", tag, err))
}

// end is the error of a command for so many tags; nil: all were done. The word says what did not happen to the others.
func (f *tagFailures) end(ctx context.Context, word string, done, tags int) error {
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: %d of %d tags were %s. Repeat the command", done, tags, word)
	}
	if failed := len(f.errs); failed > 0 {
		return fmt.Errorf("%d of %d tags were not %s (--json lists all):\n%w", failed, tags, word,
			errors.Join(f.errs[:min(failed, mostFailures)]...))
	}
	return nil
}

// forMany calls do for all, manyAtOnce at a time, and then done for each one in their order. It returns the error of
// done. An interrupted command ends earlier, without an error.
func forMany[T, R any](
	ctx context.Context, all []T, do func(context.Context, T) (R, error), done func(T, R, error) error,
) error {
	for chunk := range slices.Chunk(all, manyAtOnce) {
		results, errs := make([]R, len(chunk)), make([]error, len(chunk))
		var working sync.WaitGroup
		for i, of := range chunk {
			working.Go(func() { results[i], errs[i] = do(ctx, of) })
		}
		working.Wait()
		for i, of := range chunk {
			if errs[i] != nil && ctx.Err() != nil {
				return nil // interrupted
			}
			if err := done(of, results[i], errs[i]); err != nil {
				return err
			}
		}
	}
	return nil
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

// commandFor is the command that says where a missing tag begins. At 1 a tag is new, which is refused while records are
// lost.
func commandFor(t admin.MissingTag) string {
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
