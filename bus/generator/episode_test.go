package generator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/testkit"
)

// An alert begins when something has been wrong for long enough, once, and ends once. After a start NATS has time to
// catch up with its cluster.
func TestEpisode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wasWell bool
		wrong   string // at each second: x is wrong, . is well
		want    string // + begins, - ends
	}{
		"well":             {true, ".....", "     "},
		"degraded":         {true, ".xxx.x.", " +  -+-"},
		"never well":       {false, "xxxxxxxxxxxxx.", "          +  -"},
		"well at last":     {false, "xxxxx.x.", "      +-"},
		"not for 10 s yet": {false, "xxxxxxxxx..", "           "},
	} {
		var got []byte
		wrong := false
		a := alerts{
			cfg: &Config{Node: "n", Log: testkit.Quiet, NATSErr: func() error { return nil }}, natsWasWell: c.wasWell,
			crowded: func(time.Time) error {
				if wrong {
					return errors.New("crowded")
				}
				return nil
			},
			publish: func(msg *nats.Msg) {
				got[len(got)-1] = map[bool]byte{true: '+', false: '-'}[strings.Contains(msg.Subject, ".alert.")]
			},
		}
		for i, now := 0, time.Now(); i < len(c.wrong); i, now = i+1, now.Add(time.Second) {
			got, wrong = append(got, ' '), c.wrong[i] == 'x'
			a.lookNATS(now)
		}
		if string(got) != c.want {
			t.Errorf("%s: %s\ngot  %s\nwant %s", name, c.wrong, got, c.want)
		}
	}
}
