package bustest_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/bustest"
)

// failing is a test that may fail without failing the one that runs it.
type failing struct {
	testing.TB
	messages []string
}

func (f *failing) Helper() {}

func (f *failing) Errorf(format string, args ...any) {
	f.messages = append(f.messages, fmt.Sprintf(format, args...))
}

func (f *failing) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// audited returns how Audit fails a test.
func audited(t *testing.T, g *bustest.Generator, o audit.Options) []string {
	f := &failing{TB: t}
	var running sync.WaitGroup
	running.Go(func() { g.Audit(f, o) })
	running.Wait()
	return f.messages
}

func TestAuditNamesWhatContradicts(t *testing.T) {
	t.Parallel()
	g := bustest.Start(t, "order")
	ids, err := g.Client().Take(t.Context(), "order", 10)
	if err != nil {
		t.Fatal(err)
	}
	var taken audit.Taken
	taken.Add("order", ids...)
	if err := taken.Read(strings.NewReader("order 7-8\norder 9000000001\ncoupon 1\n"), ""); err != nil {
		t.Fatal(err)
	}
	found := strings.Join(audited(t, g, audit.Options{Taken: &taken}), "\n")
	for _, want := range []string{
		"audit: taken_twice: 7-8 of order was taken twice",
		"audit: taken_unclaimed: 9000000001 was taken and never claimed",
		"audit: taken_unclaimed: 1 was taken and never claimed",
	} {
		if !strings.Contains(found, want) || strings.Count(found, "audit: ") != 3 {
			t.Errorf("the test fails with %s, want %q", found, want)
		}
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if found := audited(t, g, audit.Options{}); len(found) != 1 || !strings.Contains(found[0], "the generator is stopped") {
		t.Errorf("with the generator stopped, the test fails with %q", found)
	}
}
