package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/bus"
)

// A question that a generator cannot answer now is asked again, for a while. Other errors come at once.
func TestQuestionsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			err     error
			fails   int // then it is answered
			asked   int
			after   time.Duration
			succeed bool
		}{
			"answered":         {nil, 0, 1, 0, true},
			"starting":         {&bus.Error{Code: 503, Reason: bus.StoreUnavailable}, 3, 4, 3 * askPause, true},
			"registry away":    {&bus.Error{Code: 503, Reason: bus.NoWorkerID}, 1, 2, askPause, true},
			"for good":         {&bus.Error{Code: 503, Reason: bus.StoreUnavailable}, 1000, 41, askAgain, false},
			"a wrong question": {&bus.Error{Code: 400, Reason: bus.BadRequest}, 1000, 1, 0, false},
			"nobody to ask":    {errors.New("no responders"), 1000, 1, 0, false},
		} {
			asked, began := 0, time.Now()
			got, err := repeatedly(func(context.Context, int) (int, error) {
				if asked++; asked <= c.fails {
					return 0, c.err
				}
				return asked, nil
			})(t.Context(), 1)
			if asked != c.asked || time.Since(began) != c.after || (err == nil) != c.succeed || err == nil && got != asked {
				t.Errorf("%s: asked %d times in %v: %d, %v", name, asked, time.Since(began), got, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := repeatedly(func(context.Context, int) (int, error) { return 0, bus.StoreUnavailable })(ctx, 1)
		if time.Since(began) != time.Second || !errors.Is(err, bus.StoreUnavailable) {
			t.Errorf("until the context ended: %v, %v", time.Since(began), err)
		}
	})
}

// Ranges of a file may come in any order. Those that come again are known.
func TestReadRuns(t *testing.T) {
	var s Runs
	if err := s.Read(strings.NewReader("20\r\n\n 7-9 \n10\n8-8\n8\n20")); err != nil {
		t.Fatal(err)
	}
	runs := s.Finish()
	if repeated, some := s.Repeated(); fmt.Sprint(runs, repeated, some) != "[7-10 20] 3 [8 20]" {
		t.Errorf("%v, repeated %d, %v", runs, repeated, some)
	}
	var many Runs // more than are added together
	var text strings.Builder
	for id := range int64(3 * takenAtOnce) {
		fmt.Fprintln(&text, bus.Range{First: 2*id + 1, Last: 2*id + 1})
	}
	if err := many.Read(strings.NewReader(text.String())); err != nil || len(many.Finish()) != 3*takenAtOnce {
		t.Errorf("%d of %d runs: %v", len(many.Finish()), 3*takenAtOnce, err)
	}
	for text, want := range map[string]string{
		"1\norder 5": "line 2: ", "5-1": "line 1: ", "0": "line 1: ", "1-": "line 1: ", "1\n\n" + strings.Repeat("1", 1<<17): "line 3: ",
	} {
		if err := new(Runs).Read(strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.20q: %v, want %s", text, err, want)
		}
	}
}
