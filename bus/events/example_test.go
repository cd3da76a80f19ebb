package events_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/bustest"
	"github.com/leafbus/leafbus/bus/events"
)

// A service that wants every event, also those of when it did not run: the
// server notes under the name "audit" how far it has come.
func ExampleFollow() {
	g, err := bustest.Open("order:500")
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	nc := g.Conn() // a service has instead: nats.Connect(nats.DefaultURL)
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	awaitEvents(js)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for event, err := range events.Follow(ctx, js, events.Durable("audit"), events.Since(time.Now().Add(-time.Hour))) {
		if errors.Is(err, events.ErrNotAnEvent) {
			log.Print(err) // somebody else's message; the events go on
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		switch body := event.Body.(type) {
		case events.Tag:
			fmt.Println(event.Type, body.Tag, body.Step)
			return
		case events.Starved:
			fmt.Println(body.Waiting, "requests wait for IDs of", body.Tag)
		}
	}
	// Output: leaf.tag.created order 500
}

// awaitEvents waits until there is a stream: a new generator makes it with its
// first event.
func awaitEvents(js jetstream.JetStream) {
	for there := false; !there; {
		for _, err := range events.Follow(context.Background(), js, events.Since(time.Now().Add(-time.Hour))) {
			there = !errors.Is(err, jetstream.ErrStreamNotFound)
			break
		}
	}
}
