package generator

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// What nobody had is not asked for again for a moment, but fewer IDs are, and those of other tags.
func TestNobodyIsAskedForAMoment(t *testing.T) {
	var b borrower
	now := time.Now()
	b.note(now, "order", "", 100)
	for _, c := range []struct {
		tag   string
		n     int64
		after time.Duration
		asks  bool
	}{
		{"order", 100, 0, false}, {"order", 101, askAgain - 1, false}, {"order", 99, 0, true}, {"order", 100, askAgain, true},
		{"other", 100, 0, true},
	} {
		if asks := b.mayAsk(now.Add(c.after), c.tag, c.n); asks != c.asks {
			t.Errorf("%+v", c)
		}
	}
	b.note(now, "order", "a", 100)
	if !b.mayAsk(now, "order", 100) {
		t.Error("nobody is asked, and one has just lent IDs")
	}
	for i := range 3 * maxBorrowed {
		b.note(now, fmt.Sprint("tag", i), "a", 1)
	}
	if len(b.of) > maxBorrowed {
		t.Errorf("%d tags are remembered", len(b.of))
	}
}

// borrowing is what the services of a generator without a connection use.
func borrowing(installation string) *common {
	b := &base{cfg: new(Config), alloc: allocator.New(allocator.Config{}), group: newGroup("me"), link: new(link)}
	b.membership = joined(b, installation)
	return &common{base: b, borrower: &borrower{base: b}, counts: new(counts)}
}

// A request that comes while nobody is asked does not put off the next question. Else many of them would for ever.
func TestNextQuestion(t *testing.T) {
	c, now := borrowing(""), time.Now()
	c.borrower.note(now, "order", "", 1)
	_, ok := newSegments(c).borrow(Answer{Tag: "order", begun: now}, 1)
	if until := c.borrower.of["order"].until; ok || !until.Equal(now.Add(askAgain)) {
		t.Errorf("the next question is %v after a request", time.Until(until))
	}
}

// The peer that lent IDs of the tag last is asked first, and one that has just not answered last. One of another
// installation, or that cannot serve, is not asked.
func TestLenders(t *testing.T) {
	g := borrowing("own")
	offers := newSegments(g).offers
	now := time.Now()
	for i, flags := range []string{
		`"installation":"other","segment":true`, `"installation":"own"`, `"witness":"other","segment":true`,
	} {
		g.group.hear(now, 0, fmt.Appendf(nil, `{"id":"no%d",%s}`, i, flags))
	}
	if g.group.anyPeer(now, time.Time{}, offers) {
		t.Error("a peer of another installation counts as one that can serve")
	}
	for i := range 2 * maxLenders {
		g.group.hear(now, 0, fmt.Appendf(nil, `{"id":"run%02d","installation":"own","segment":true}`, i))
	}
	for i := range maxLenders + 2 {
		g.borrower.fail(now, fmt.Sprintf("run%02d", i))
	}
	g.borrower.note(now, "order", "run12", 1)
	firsts := make(map[string]bool)
	for range 100 {
		runs := g.borrower.lenders("order", offers)
		if len(runs) != maxLenders || runs[0] != "run12" {
			t.Fatalf("asked are %v", runs)
		}
		for _, run := range runs[:maxLenders-2] {
			if run < "run10" {
				t.Fatalf("one that does not answer is asked before others: %v", runs)
			}
		}
		firsts[runs[1]] = true
		if slices.ContainsFunc(runs, func(run string) bool { return run < "run" }) {
			t.Fatalf("asked are %v", runs)
		}
	}
	if len(firsts) != maxLenders-3 {
		t.Errorf("one of the others is asked more often: %v", firsts)
	}
	if g.borrower.hasFailed(now.Add(answeredLately), "run00") {
		t.Error("a run counts as silent for ever")
	}
	g.membership.identity.Store(nil)
	if runs := g.borrower.lenders("order", offers); runs != nil {
		t.Errorf("before it has joined an installation it asks %v", runs)
	}
}
