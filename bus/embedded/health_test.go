package embedded

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
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

func TestOurs(t *testing.T) {
	for stream, want := range map[string]bool{
		"KV_LEAF": true, "KV_LEAF_TAGS": true, "KV_LEAF_WORKERS": true, "LEAF_EVENTS": true, "ORDERS": false, "KV_ORDERS": false,
	} {
		if ours(stream) != want {
			t.Errorf("%s: %v", stream, !want)
		}
	}
}
