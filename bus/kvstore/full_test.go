package kvstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
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
		if got := full(err); got != want || errors.Is(failedWrite(err), allocator.ErrUncertain) == want {
			t.Errorf("%v: full is %v; %v", err, got, failedWrite(err))
		}
	}
}
