package kvstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// Only an error by which JetStream surely stored nothing says so.
func TestFull(t *testing.T) {
	t.Parallel()
	api := func(code jetstream.ErrorCode, text string) error {
		return fmt.Errorf("update: %w", &jetstream.APIError{Code: 503, ErrorCode: code, Description: text})
	}
	for err, want := range map[error]bool{
		api(10002, "resource limits exceeded for account"):     true,
		api(10023, "insufficient resources"):                   true,
		api(10054, "message size exceeds maximum allowed"):     true,
		api(10077, "maximum bytes exceeded"):                   true,
		api(10077, "maximum messages exceeded"):                true,
		api(10077, "store is closed"):                          false,
		api(10008, "JetStream system temporarily unavailable"): false,
		errors.New("nats: timeout"):                            false,
	} {
		if got := full(err); got != want {
			t.Errorf("%v: full is %v", err, got)
		}
	}
}

// A size for which there is no room is halved, whoever says it, and no other error makes a stream smaller.
func TestShrink(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code jetstream.ErrorCode
		text string
		want int64
	}{
		{10047, "insufficient storage resources available", 64 << 20}, {10122, "", 64 << 20},
		{10005, "no suitable peers for placement, insufficient storage", 64 << 20},
		{10005, "no suitable peers for placement, peer offline", 0},
	} {
		made := int64(0)
		err := shrink(256<<20, func(size int64) error {
			if size > 64<<20 {
				return &jetstream.APIError{ErrorCode: c.code, Description: c.text}
			}
			made = size
			return nil
		})
		if made != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%d %s: %d bytes, %v", c.code, c.text, made, err)
		}
	}
}
