package bus

import (
	"errors"
	"testing"
	"time"
)

// An attempt that is not answered lets the next one last twice as long, up to a
// bound; one for many IDs has that at once.
func TestAttemptsLastLonger(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	u.first = 100 * time.Millisecond
	took := make(chan error)
	go func() {
		_, err := u.Take(t.Context(), "order", 1)
		took <- err
	}()
	var came []time.Time
	for range 4 {
		msg := <-u.requests
		if came = append(came, time.Now()); len(came) == 4 {
			msg.Respond([]byte("7"))
		}
	}
	if err := <-took; err != nil {
		t.Error(err)
	}
	for i, least := 1, u.first; i < len(came); i, least = i+1, 2*least {
		if pause := came[i].Sub(came[i-1]); pause < least {
			t.Errorf("attempt %d lasted %v, want %v at least", i, pause, least)
		}
	}

	go func() {
		_, err := u.Take(t.Context(), "order", fewIDs+1)
		took <- err
	}()
	msg := <-u.requests
	select {
	case <-u.requests:
		t.Error("many IDs are asked for again as soon as few")
	case <-time.After(5 * u.first):
	}
	msg.Respond([]byte("1000-2000"))
	if err := <-took; err != nil {
		t.Error(err)
	}
}

// That a connection may not have answers is forgotten with it.
func TestDeafnessEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	why := errors.New("no inbox")
	of := func(string) bool { return true }
	u.deaf.Store(&deafness{why, 0})
	if err := u.denied(nil, of); !errors.Is(err, why) {
		t.Errorf("on the same connection: %v", err)
	}
	u.deaf.Store(&deafness{why, 1})
	if err := u.denied(nil, of); err != nil {
		t.Errorf("on a later connection: %v", err)
	}
}
