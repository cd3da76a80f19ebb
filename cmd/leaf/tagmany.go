package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// mostFailures is how many failures are printed. With --json the result has all.
const mostFailures = 20

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

// outcome is what came of one of many.
type outcome[T, R any] struct {
	of     T
	result R
	err    error
}

// forMany calls do for all, about atOnce at a time, and then done for each one in their order. It returns the error of
// done. An interrupted command ends earlier, without an error. quiet: the progress is not shown, because done prints to
// the terminal.
func forMany[T, R any](
	cmd *cobra.Command, all []T, atOnce int, quiet bool, do func(context.Context, T) (R, error), done func(T, R, error) error,
) error {
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	shown := cmd.ErrOrStderr()
	if quiet {
		shown = io.Discard
	}
	progress := newProgress(shown, int64(len(all)), "tags")
	defer progress.end()
	for pending := range startMany(ctx, all, atOnce, do) {
		o := <-pending
		if o.err != nil && ctx.Err() != nil {
			break // interrupted
		}
		progress.add(1)
		if err := done(o.of, o.result, o.err); err != nil {
			return err
		}
	}
	return nil
}

// startMany calls do for all, about atOnce at a time. It returns the outcomes in order.
func startMany[T, R any](
	ctx context.Context, all []T, atOnce int, do func(context.Context, T) (R, error),
) <-chan chan outcome[T, R] {
	outcomes := make(chan chan outcome[T, R], atOnce)
	go func() {
		defer close(outcomes)
		for _, of := range all {
			o := make(chan outcome[T, R], 1)
			select {
			case outcomes <- o:
			case <-ctx.Done():
				return
			}
			go func() {
				result, err := do(ctx, of)
				o <- outcome[T, R]{of, result, err}
			}()
		}
	}()
	return outcomes
}
