package generator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/testkit"
)

// An alert begins when something has been wrong for long enough, once, and ends once. After a start NATS has time to
// catch up with its cluster. What is wrong only because the generator has not joined the installation yet is no alert.
func TestEpisode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wasWell bool
		wrong   string // at each second: x is wrong, . is well, n is not joined
		want    string // + begins, - ends
	}{
		"well":             {true, ".....", "     "},
		"degraded":         {true, ".xxx.x.", " +  -+-"},
		"never well":       {false, "xxxxxxxxxxxxx.", "          +  -"},
		"well at last":     {false, "xxxxx.x.", "      +-"},
		"not for 10 s yet": {false, "xxxxxxxxx..", "           "},
		"not joined":       {false, "nnnnnnnnnnnnxxxx.", "                 "},
	} {
		var got []byte
		var wrong error
		var open bool
		f := newFindings("n", func(msg *nats.Msg) {
			open = strings.Contains(msg.Subject, ".alert.")
			got[len(got)-1] = map[bool]byte{true: '+', false: '-'}[open]
		})
		a := alerts{base: &base{cfg: &Config{Node: "n", Log: testkit.Quiet}}, findings: f}
		nats := &condition{kind: "nats.degraded",
			why:   func(time.Time) error { return wrong },
			alert: func(err error, _ time.Time) any { return events.NATSDegraded{Cause: err.Error()} }}
		if !c.wasWell {
			nats.start = degradedStart
		}
		for i, now := 0, time.Now(); i < len(c.wrong); i, now = i+1, now.Add(time.Second) {
			got = append(got, ' ')
			wrong = map[byte]error{'x': errors.New("crowded"), 'n': fmt.Errorf("no worker: %w", errNotJoined)}[c.wrong[i]]
			a.judge(now, nats)
			if is := len(f.list(0, 0, nil)) == 1; is != open {
				t.Errorf("%s: at %d the finding is there: %v", name, i, is)
			}
		}
		if string(got) != c.want {
			t.Errorf("%s: %s\ngot  %s\nwant %s", name, c.wrong, got, c.want)
		}
	}
}
