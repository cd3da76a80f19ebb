package embedded

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// What a check finds is reported at once, unless an election or a catch-up may end it.
func TestReports(t *testing.T) {
	passing, behind := fault{err: errors.New("no leader"), passing: true}, fault{err: errors.New("behind"), passing: true}
	full, stopped := fault{err: errors.New("full")}, fault{err: errors.New("x"), stopped: true}
	noRoom := fault{err: errors.New("x; no room"), stopped: true, full: true}
	for name, c := range map[string]struct {
		found []fault // one a second
		want  []string
	}{
		"well":                        {[]fault{{}, {}}, []string{"", ""}},
		"not yet current":             {[]fault{passing, behind, {}, passing}, []string{"no leader", "behind", "", ""}},
		"full":                        {[]fault{{}, full, {}}, []string{"", "full", ""}},
		"full while a leader is away": {[]fault{{}, passing, full, passing, {}}, []string{"", "", "full", "no leader", ""}},
		"stopped, no room":            {[]fault{{}, {}, {}, {}, {}, {}, noRoom}, []string{"", "", "", "", "", "", "x; no room"}},
		"stopped at the start":        {[]fault{stopped, {}, {}, {}, {}, stopped}, []string{"x", "", "", "", "", "x; RESTART"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := health{restart: make(chan struct{})}
			for i, found := range c.found {
				now := time.Unix(int64(i), 0)
				h.end(now, found)
				want := strings.ReplaceAll(c.want[i], "RESTART", ErrRestart.Error())
				if err := h.at(now); (err == nil) != (want == "") || err != nil && err.Error() != want {
					t.Errorf("check %d: %v, want %q", i, err, want)
				}
				if errors.Is(h.at(now), ErrRestart) != strings.Contains(c.want[i], "RESTART") {
					t.Errorf("check %d: %v matches ErrRestart wrongly", i, h.at(now))
				}
			}
		})
	}
}

func TestElectionIsNoFault(t *testing.T) {
	var h health
	now := time.Unix(0, 0)
	h.end(now, fault{})
	for range 3 { // episodes; the one before does not count for the next
		for second := time.Duration(0); second < 20*time.Second; second += time.Second {
			now = now.Add(time.Second)
			h.end(now, fault{err: errors.New("no leader"), passing: true})
			if err := h.at(now); (err != nil) != (second >= electionPatience) {
				t.Errorf("after %v: %v", second, err)
			}
		}
		if h.end(now, fault{}); h.at(now) != nil {
			t.Fatal(h.at(now))
		}
	}
}

// A check that does not end is a fault itself, as long as it lasts.
func TestSlowCheck(t *testing.T) {
	var h health
	now := time.Unix(0, 0)
	h.end(now, fault{})
	h.begin(now)
	if err := h.at(now.Add(slowCheck)); err != nil {
		t.Errorf("after %v: %v", slowCheck, err)
	}
	if err := h.at(now.Add(7 * time.Second)); err == nil || !strings.Contains(err.Error(), "for 7s") {
		t.Errorf("after 7 s: %v", err)
	}
	h.end(now, fault{})
	if err := h.at(now.Add(time.Hour)); err != nil {
		t.Errorf("after its end: %v", err)
	}
}

// When only a restart helps, that error stays, and AwaitRestart returns it.
func TestAwaitRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{health: health{restart: make(chan struct{})}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- s.AwaitRestart(ctx) }()
		s.health.end(time.Now(), fault{err: errors.New("full")})
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatal("a disk that is full is no reason to restart")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("when nobody waits any more: %v", err)
		}
		go func() { ended <- s.AwaitRestart(t.Context()) }()
		s.health.end(time.Now().Add(firstRestart), fault{err: errors.New("stopped"), stopped: true})
		if err := <-ended; !errors.Is(err, ErrRestart) {
			t.Error(err)
		}
		s.health.end(time.Now(), fault{})
		if err := s.Health(); !errors.Is(err, ErrRestart) {
			t.Errorf("it is well again: %v", err)
		}
	})
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
