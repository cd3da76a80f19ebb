package schema_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/schema"
)

// A service embeds the allocator: it hands out IDs from memory, in ranges that
// it reserves in the table leaf_alloc.
func Example() {
	store, err := schema.New(schema.Config{DSN: "leaf:secret@tcp(127.0.0.1:3306)/leaf"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := store.Open(ctx); err != nil { // creates the table if there is none
		log.Fatal(err)
	}

	a := allocator.New(allocator.Config{Store: store})
	go a.Run(ctx)
	ids, err := a.Take(ctx, "order", 100)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ids)
}
