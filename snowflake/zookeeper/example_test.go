package zookeeper_test

import (
	"context"
	"log"

	"github.com/leafbus/leafbus/snowflake/zookeeper"
)

func ExampleNew() {
	r, err := zookeeper.New(zookeeper.Config{Hosts: "h1:2181,h2:2181,h3:2181", Name: "shop", Node: "a"})
	if err != nil {
		log.Fatal(err) // a host or a name that cannot be one
	}
	defer r.Close()
	installation, _, err := r.Claim(context.Background(), "shop-7f3a", true)
	if err != nil || installation != "shop-7f3a" {
		log.Fatalf("the workers belong to installation %s: %v", installation, err)
	}
	// A snowflake.Generator takes r as its Config.Registry.
}
