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

// The log says once a minute, and not once for all, why a generator cannot serve yet.
func TestRetryIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := &preparation{base: &base{cfg: &Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, phase: newPhase()}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_ = p.retry(ctx, func(context.Context) error { return errors.New("the password is wrong") })
		if n := strings.Count(log.String(), "the password is wrong"); n < 9 || n > 11 {
			t.Errorf("the log says it %d times in 10 minutes", n)
		}
	})
}
