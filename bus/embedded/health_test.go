package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// What a look finds is reported at once, unless an election or a catch-up may end it.
func TestJudge(t *testing.T) {
	full := errors.New("no room")
	passing, behind := fault{why: "no leader", passing: true}, fault{why: "behind", passing: true}
	for name, c := range map[string]struct {
		looks []fault // one a second
		want  []string
	}{
		"well":                        {[]fault{{}, {}}, []string{"", ""}},
		"not yet current":             {[]fault{passing, behind, {}, passing}, []string{"no leader", "behind", "", ""}},
		"full":                        {[]fault{{}, {why: "full"}, {}}, []string{"", "full", ""}},
		"full while a leader is away": {[]fault{{}, passing, {why: "full"}, passing, {}}, []string{"", "", "full", "no leader", ""}},
		"stopped, no room":            {[]fault{{}, {why: "x", stopped: true, room: full}}, []string{"", "x; no room"}},
		"stopped at the start": {
			[]fault{{why: "x", stopped: true}, {}, {}, {}, {}, {why: "x", stopped: true}},
			[]string{"x", "", "", "", "", "x; RESTART"}},
	} {
		t.Run(name, func(t *testing.T) {
			var j judge
			for i, found := range c.looks {
				err := j.next(time.Unix(int64(i), 0), found)
				want := strings.ReplaceAll(c.want[i], "RESTART", ErrRestart.Error())
				if got := fmt.Sprint(err); got != want && !(err == nil && want == "") {
					t.Errorf("look %d: %v, want %q", i, err, want)
				}
				if errors.Is(err, ErrRestart) != strings.Contains(c.want[i], "RESTART") {
					t.Errorf("look %d: %v matches ErrRestart wrongly", i, err)
				}
			}
		})
	}
}

func TestElectionIsNoFault(t *testing.T) {
	var j judge
	now := time.Unix(0, 0)
	if err := j.next(now, fault{}); err != nil {
		t.Fatal(err)
	}
	for range 3 { // episodes; the one before does not count for the next
		for second := time.Duration(0); second < 20*time.Second; second += time.Second {
			now = now.Add(time.Second)
			if err := j.next(now, fault{why: "no leader", passing: true}); (err != nil) != (second >= electionPatience) {
				t.Errorf("after %v: %v", second, err)
			}
		}
		if err := j.next(now, fault{}); err != nil {
			t.Fatal(err)
		}
	}
}

// A stream of Leafbus that cannot be written any more takes a restart. One of others does not: it
// would end the generator for it again and again.
func TestWriteErrorOfOthers(t *testing.T) {
	s := start(t, config(t, ""))
	js, err := jetstream.New(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		stopped bool
	}{{"ORDERS", false}, {"LEAF_EVENTS", true}} {
		stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: c.name, Subjects: []string{c.name}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(t.Context(), c.name, nil); err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(s.dir, "jetstream", "*", "streams", c.name, "msgs"))
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		if err := errors.Join(os.RemoveAll(found[0]), os.WriteFile(found[0], nil, 0o600)); err != nil { // no folder any more
			t.Fatal(err)
		}
		if stream.Purge(t.Context()) == nil { // which needs a new file there
			t.Errorf("%s is written", c.name)
		}
		if f := s.check(); f.stopped != c.stopped {
			t.Errorf("%s cannot be written: %+v", c.name, f)
		}
	}
}

func TestOfOthers(t *testing.T) {
	for text, want := range map[string]bool{
		"Filestore [ORDERS] Critical write error: no":                               true,
		"Filestore [KV_LEAF_TAGS] Critical write error: no":                         false,
		"Filestore [_meta_] Critical write error: no":                               false,
		"Filestore [S-R3F-Tk29sXqO] Critical write error: no":                       false,
		"JetStream stream 'my > account > ORDERS' critical write error: no":         true,
		"JetStream stream '$G > LEAF_EVENTS' critical write error: no":              false,
		"JetStream consumer '$G > ORDERS > LEAF_x' critical write error: no":        true,
		"JetStream consumer '$G > LEAF_EVENTS > mine' critical write error: no":     false,
		"JetStream cluster meta group critical write error: no":                     false,
		"RAFT [fjFyEjc1 - S-R3F-Tk29sXqO] Critical write error: 'a > b' no":         false,
		"something new: critical write error: JetStream stream '$G > ORDERS' fails": false,
	} {
		if ofForeignStream(text) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}
