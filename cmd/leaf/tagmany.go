package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/leafbus/leafbus/internal/cli"
)

const (
	mostFailures = 20 // are printed. With --json the result has all
	manyAtOnce   = 16 // tags are changed at a time
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

func newTagFailures() tagFailures { return tagFailures{Failed: []failedTag{}} }

func (f *tagFailures) add(tag string, err error) {
	f.Failed = append(f.Failed, failedTag{tag, err.Error()})
	if !strings.HasPrefix(err.Error(), tag+": ") {
		err = fmt.Errorf("%s: %w", tag, err)
	}
	f.errs = append(f.errs, err)
}

// error returns what the command for so many tags ends with. The word says what did not happen to those that failed.
func (f *tagFailures) error(word string, tags int) error {
	switch failed := len(f.errs); {
	case failed > mostFailures:
		return fmt.Errorf("%d of %d tags were not %s:\n%w\nand %d more (--json lists all)",
			failed, tags, word, errors.Join(f.errs[:mostFailures]...), failed-mostFailures)
	case failed > 0 && tags > 1:
		return fmt.Errorf("%d of %d tags were not %s:\n%w", failed, tags, word, errors.Join(f.errs...))
	}
	return errors.Join(f.errs...)
}

// forMany calls do for all, manyAtOnce at a time, and then done for each one in their order. It returns the error of
// done. An interrupted command ends earlier, without an error.
func forMany[T, R any](
	s *cli.Session, all []T, do func(context.Context, T) (R, error), done func(T, R, error) error,
) error {
	shown := s.Cmd.ErrOrStderr()
	if !s.JSON && cli.IsTerminal(s.Out()) {
		shown = io.Discard // the results themselves show the progress
	}
	progress := cli.NewProgress(shown)
	defer progress.End()
	first := 0
	for chunk := range slices.Chunk(all, manyAtOnce) {
		results, errs := make([]R, len(chunk)), make([]error, len(chunk))
		var working sync.WaitGroup
		for i, of := range chunk {
			working.Go(func() { results[i], errs[i] = do(s.Context(), of) })
		}
		working.Wait()
		for i, of := range chunk {
			if errs[i] != nil && s.Context().Err() != nil {
				return nil // interrupted
			}
			if err := done(of, results[i], errs[i]); err != nil {
				return err
			}
		}
		first += len(chunk)
		progress.At("tags", int64(first), int64(len(all)))
	}
	return nil
}
