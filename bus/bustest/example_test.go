package bustest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/bustest"
)

// shop is a program that takes its order numbers from Leafbus.
type shop struct{ ids *bus.Client }

func (s shop) order(ctx context.Context) (number int64, err error) {
	ranges, err := s.ids.Take(ctx, "order", 1)
	if err != nil {
		return 0, fmt.Errorf("no number for the order: %w", err)
	}
	return ranges[0].First, nil
}

func ExampleStart() {
	_ = func(t *testing.T) { // func TestOrder(t *testing.T)
		g := bustest.Start(t, "order")
		s := shop{g.Client()}
		if n, err := s.order(t.Context()); n != 1 || err != nil {
			t.Errorf("the first order is %d, %v", n, err)
		}
	}
}

func ExampleOpen() {
	g, err := bustest.Open("order", "coupon:5000")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()

	ctx := context.Background()
	fmt.Println(g.Client().Take(ctx, "order", 5))
	fmt.Println(g.Client().Take(ctx, "coupon", 2))
	_, err = g.Client().Snowflakes(ctx, 100)
	fmt.Println(err)
	// Output:
	// [1-5] <nil>
	// [1-2] <nil>
	// <nil>
}

// Does the program use an ID twice, or one that it did not get?
func ExampleGenerator_Audit() {
	_ = func(t *testing.T) { // func TestOrders(t *testing.T)
		g := bustest.Start(t, "order")
		s := shop{g.Client()}
		taken := &audit.Taken{}
		for range 100 {
			n, err := s.order(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			taken.Add("order", bus.Range{First: n, Last: n})
		}
		g.Audit(t, audit.Options{Taken: taken})
	}
}

// What does the program do when no generator is there, and when it is back?
func ExampleGenerator_Stop() {
	g, err := bustest.Open("order")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	s := shop{g.Client()}
	ctx := context.Background()
	fmt.Println(s.order(ctx))

	if err := g.Stop(); err != nil {
		fmt.Println(err)
	}
	short, cancel := context.WithTimeout(ctx, 600*time.Millisecond)
	defer cancel()
	_, err = s.order(short)
	fmt.Println(errors.Is(err, nats.ErrNoResponders))

	if err := g.Restart(); err != nil {
		fmt.Println(err)
	}
	fmt.Println(s.order(ctx)) // what was in memory is a gap
	// Output:
	// 1 <nil>
	// true
	// 1001 <nil>
}
