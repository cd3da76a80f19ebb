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
	a := allocator.New(allocator.Config{Records: allocatortest.NewMemoryRecords()}) // in earnest, some that last
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	if _, err := a.Create(ctx, allocator.Tag{Name: "order", MaxID: 1, Step: 1000}, 0, false); err != nil {
		log.Fatal(err)
	}

	ids, err := a.Take(ctx, "order", 5)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ids)

	cancel()
	running.Wait()
	// Output: [1-5]
}
