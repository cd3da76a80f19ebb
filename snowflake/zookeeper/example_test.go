package zookeeper_test

import (
	"context"
	"log"
	"log/slog"

	"github.com/leafbus/leafbus/snowflake/zookeeper"
)

func ExampleNew() {
	ctx := context.Background()
	r, err := zookeeper.New(zookeeper.Config{Hosts: "h1:2181,h2:2181,h3:2181", Name: "shop", Node: "a", Log: slog.Default()})
	if err != nil {
		log.Fatal(err) // a host or a name that cannot be one
	}
	defer r.Close()
	const ours = "shop-7f3a"
	installation, _, err := r.Claim(ctx, ours, true)
	if err != nil {
		log.Fatal(err) // another layout, say
	}
	if installation != ours {
		log.Fatalf("the workers belong to installation %s", installation)
	}
	workers, err := r.List(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, w := range workers {
		log.Printf("worker %d is held by %s", w.Worker, w.Node)
	}
	// A snowflake.Generator takes r as its Config.Registry.
}
