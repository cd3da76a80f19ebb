package bustest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/bustest"
	"github.com/leafbus/leafbus/internal/testkit"
)

// recorder is a test of which nobody hears but this one.
type recorder struct {
	testing.TB
	out      bytes.Buffer
	errors   []any
	fatal    []any
	cleanups []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Output() io.Writer { return &r.out }

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Error(args ...any) { r.errors = append(r.errors, args...) }

func (r *recorder) Fatal(args ...any) {
	r.fatal = append(r.fatal, args...)
	runtime.Goexit()
}

// run runs a test to its end.
func (r *recorder) run(test func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, f := range r.cleanups {
				f()
			}
		}()
		test()
	}()
	<-done
}

// The log of a generator is that of its test, and it ends with that.
func TestStartLogs(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	r.run(func() {
		bustest.Start(r, "no tag")
		t.Error("the test went on")
	})
	if len(r.fatal) != 1 {
		t.Errorf("failed with %v", r.fatal)
	}
	r = &recorder{TB: t}
	var g *bustest.Generator
	r.run(func() {
		g = bustest.Start(r, "order")
		if _, err := admin.NewClient(g.Conn()).DeleteTag(t.Context(), "order"); err != nil {
			t.Error(err)
		}
		if err := g.Restart(); err != nil {
			t.Error(err)
		}
	})
	if log := r.out.String(); !strings.Contains(log, "level=WARN") || !strings.Contains(log, "tag=order") {
		t.Errorf("a deleted tag is not in the log: %q", log)
	}
	if !g.Conn().IsClosed() {
		t.Error("the generator outlives its test")
	}
	if len(r.errors)+len(r.fatal) > 0 {
		t.Errorf("the test failed: %v %v", r.errors, r.fatal)
	}
}

// A generator that gave up is no stopped one: the test hears of it.
func TestGeneratorFails(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	r.run(func() {
		g := bustest.Start(r, "order")
		older, err := json.Marshal(map[string]any{"node": "other", "id": "other", "installation": "older", "created": time.Unix(1, 0)})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Conn().Publish("leaf.internal.presence", older); err != nil {
			t.Error(err)
		}
		testkit.Eventually(t, "it yields to an older installation", func() bool {
			_, err := g.Conn().Request("leaf.snowflake", nil, testkit.Patience)
			return errors.Is(err, nats.ErrNoResponders)
		})
	})
	if len(r.errors) != 1 || !strings.Contains(r.errors[0].(error).Error(), "older") {
		t.Errorf("the test heard %v", r.errors)
	}
}
