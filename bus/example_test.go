package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/bustest"
)

// open starts a generator for an example. A service has instead:
//
//	nc, err := nats.Connect(nats.DefaultURL)
//	client := bus.NewClient(nc)
func open(tags ...string) (client *bus.Client, done func()) {
	g, err := bustest.Open(tags...)
	if err != nil {
		log.Fatal(err)
	}
	return g.Client(), func() { g.Close() }
}

// Two connections: a NATS server that hangs costs a call a few milliseconds.
func ExampleConnect() {
	g, err := bustest.Open("order")
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()

	client, err := bus.Connect(g.URL()) // list all servers
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fmt.Println(client.Tag("order").Next(context.Background()))
	// Output: 1 <nil>
}

// Options of the connections, such as credentials, and of the client.
func ExampleConnectWith() {
	g, err := bustest.Open("order")
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()

	client, err := bus.ConnectWith([]string{g.URL()}, []nats.Option{nats.Name("shop")}, bus.Timeout(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fmt.Println(client.Take(context.Background(), "order", 3))
	// Output: [1-3] <nil>
}

// A service that has a connection makes one client on it.
func ExampleNewClient() {
	g, err := bustest.Open("order")
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()

	client := bus.NewClient(g.Conn(), bus.NoHedging())
	fmt.Println(client.Next(context.Background(), "order"))
	fmt.Println(client.Stats() == bus.Stats{Requests: 1})
	// Output:
	// 1 <nil>
	// true
}

// One ID for each request that a service answers: those that come together are
// asked for together.
func ExampleClient_Next() {
	client, done := open("order")
	defer done()

	id, err := client.Next(context.Background(), "order")
	fmt.Println(id, err)
	// Output: 1 <nil>
}

// A service that takes a Source can be tested with bustest.Fake.
func ExampleClient_Tag() {
	client, done := open("order")
	defer done()

	newOrder := func(ids bus.Source) (int64, error) { return ids.Next(context.Background()) }
	fmt.Println(newOrder(client.Tag("order")))
	fmt.Println(newOrder(&bustest.Fake{}))
	// Output:
	// 1 <nil>
	// 1 <nil>
}

// An ORM that inserts 1,000 rows together sets their keys from one request. With GORM this is a BeforeCreate hook of the
// slice, or a loop before db.CreateInBatches.
func ExampleTag_Take() {
	client, done := open("row")
	defer done()

	rows := make([]struct{ ID int64 }, 1000)
	ranges, err := client.Tag("row").Take(context.Background(), int64(len(rows)))
	if err != nil {
		log.Fatal(err)
	}
	i := 0
	for _, r := range ranges {
		for id := range r.All() {
			rows[i].ID = id
			i++
		}
	}
	fmt.Println(rows[0].ID, rows[999].ID)
	// Output: 1 1000
}

// Several IDs at once come as ranges.
func ExampleClient_Take() {
	client, done := open("order")
	defer done()

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	ranges, err := client.Take(ctx, "order", 1000)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range ranges {
		fmt.Println(r.First, r.Last, r.Len(), r == bus.Range{First: 1, Last: 1000})
	}
	for id := range ranges[0].All() {
		if id > 2 {
			break
		}
		fmt.Println(id)
	}
	// Output:
	// 1 1000 1000 true
	// 1
	// 2
}

// Where an ID must cost nothing, a pool has it in memory.
func ExamplePool() {
	client, done := open("order")
	defer done()

	orders, err := client.Pool("order", bus.Ahead(10, 1_000_000))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		id, err := orders.Next(context.Background())
		fmt.Println(id, err)
	}
	for _, r := range orders.Close() {
		fmt.Println("unused:", r)
	}
	_, err = orders.Next(context.Background())
	fmt.Println(errors.Is(err, bus.ErrPoolClosed))
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 3 <nil>
	// unused: 4-10
	// true
}

// An import gets its IDs as it goes, in batches that are fetched ahead.
func ExampleClient_IDs() {
	client, done := open("row")
	defer done()

	rows := []string{"ape", "bee", "cat"}
	next := 0
	for id, err := range client.IDs(context.Background(), "row", int64(len(rows)), bus.Batch(2), bus.Parallel(1)) {
		if err != nil {
			log.Fatal(err) // the rows before have their IDs
		}
		fmt.Println(id, rows[next])
		next++
	}
	// Output:
	// 1 ape
	// 2 bee
	// 3 cat
}

// A bulk loader that takes ranges: a hundred million IDs are a thousand of them.
func ExampleClient_Ranges() {
	client, done := open("row:1000000")
	defer done()

	for r, err := range client.Ranges(context.Background(), "row", 250_000, bus.Parallel(1)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r)
	}
	// Output:
	// 1-100000
	// 100001-200000
	// 200001-250000
}

// A snowflake says when and by which worker it was made.
func ExampleClient_Decode() {
	client, done := open()
	defer done()

	id, err := client.NextSnowflake(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	var made bus.Decoded
	if made, err = client.Decode(context.Background(), id); err != nil {
		log.Fatal(err)
	}
	fmt.Println(made.ID == bus.ID(id), time.Since(time.UnixMilli(made.UnixMS)) < time.Minute)
	// Output: true true
}

// The reason says what went wrong.
func ExampleReason() {
	client, done := open("order")
	defer done()

	_, err := client.Next(context.Background(), "coupon")
	switch {
	case errors.Is(err, bus.UnknownTag):
		fmt.Println("make it first: leaf tag add coupon")
	case errors.Is(err, bus.Overloaded), errors.Is(err, bus.StoreUnavailable):
		fmt.Println("it was tried again until the time was up")
	}
	// Output: make it first: leaf tag add coupon
}

// Whoever asks over plain NATS gets the error from the reply.
func ExampleReplyError() {
	g, err := bustest.Open("order")
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()

	reply, err := g.Conn().Request("leaf.segment.coupon", nil, time.Second)
	if err != nil {
		log.Fatal(err)
	}
	if e, ok := errors.AsType[*bus.Error](bus.ReplyError(reply)); ok {
		fmt.Println(e.Code, e.Reason)
	}
	// Output: 404 unknown_tag
}

// IDs are strings in JSON.
func ExampleID() {
	type order struct {
		ID bus.ID `json:"id"`
	}
	text, err := json.Marshal(order{ID: bus.ID(1234567890123456789)})
	fmt.Println(string(text), err)
	// Output: {"id":"1234567890123456789"} <nil>
}

// Counts and latencies go where a service keeps its metrics.
func ExampleOnCall() {
	g, err := bustest.Open("order")
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()

	client := g.Client(bus.OnCall(func(c bus.Call) {
		fmt.Println(c.Subject, c.IDs, c.Took > 0, c.Err) // such as histogram.WithLabelValues(c.Subject).Observe(…)
	}))
	client.Take(context.Background(), "order", 5)
	// Output: leaf.segment.order 5 true <nil>
}
