package generator

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The log says why a start waits, and repeats it each minute: an operator may look at its end only.
func TestWaitIsRepeatedInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g := &Generator{log: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute+30*time.Second)
		defer cancel()
		_ = g.retry(ctx, func(context.Context) error { return errors.New("waiting for the record") })
		if n := strings.Count(log.String(), "waiting for the record"); n != 3 {
			t.Errorf("%d lines in 2.5 minutes:\n%s", n, log.String())
		}
	})
}
