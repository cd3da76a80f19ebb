package bus_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
)

// A service that wants every event, also those of when it did not run: the
// server notes under the name "audit" how far it has come.
func ExampleClient_Events() {
	client, done := open("order:500")
	defer done()
	awaitEvents(client)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for event, err := range client.Events(ctx, bus.Durable("audit"), bus.Since(time.Now().Add(-time.Hour))) {
		if errors.Is(err, bus.ErrNotAnEvent) {
			log.Print(err) // somebody else's message; the events go on
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		switch body := event.Body.(type) {
		case bus.TagEvent:
			fmt.Println(event.Type, body.Tag, body.Step)
			return
		case bus.StarvedEvent:
			fmt.Println(body.Waiting, "requests wait for IDs of", body.Tag)
		}
	}
	// Output: leaf.tag.created order 500
}

// awaitEvents waits until there is a stream: a new generator makes it with its
// first event.
func awaitEvents(client *bus.Client) {
	for there := false; !there; {
		for _, err := range client.Events(context.Background(), bus.Since(time.Now().Add(-time.Hour))) {
			there = !errors.Is(err, jetstream.ErrStreamNotFound)
			break
		}
	}
}
