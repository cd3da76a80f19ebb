package allocator_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

func ExampleAllocator_Take() {
	ctx, cancel := context.WithCancel(context.Background())
	store := allocatortest.NewMemory() // in earnest, one that lasts
	if _, err := store.Create(ctx, allocator.Tag{Name: "order", MaxID: 1, Step: 1000}); err != nil {
		log.Fatal(err)
	}
	a := allocator.New(allocator.Config{Records: store})
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })

	ids, err := a.Take(ctx, "order", 5)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ids)

	cancel()
	running.Wait()
	// Output: [1-5]
}
