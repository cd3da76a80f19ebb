package generator

import (
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

func TestPatience(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{
		"": bus.DefaultTimeout, "0": 0, "1500": 1500 * time.Millisecond, "4294967295": wire.MaxAdminTimeout,
	} {
		if got, err := readPatience(header); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", header, got, err, want)
		}
	}
	for _, header := range []string{"-1", "5s", "1e3", "99999999999999999999"} {
		if got, err := readPatience(header); err == nil {
			t.Errorf("%q is %v", header, got)
		}
	}
	for _, patience := range []time.Duration{0, time.Second, bus.DefaultTimeout, wire.MaxAdminTimeout} {
		if kept := answerTime(patience); kept > patience/10 || kept > maxAnswerTime {
			t.Errorf("of %v the answer has %v", patience, kept)
		}
	}
}
