package zookeeper

import (
	"sync"
	"testing"
)

// batch runs tests that wait for most of their time. More of them run at a time
// than the machine has processors, to which [testing.T.Parallel] keeps.
type batch struct {
	t       *testing.T
	slots   chan struct{}
	running sync.WaitGroup
}

func newBatch(t *testing.T, most int) *batch {
	return &batch{t: t, slots: make(chan struct{}, most)}
}

// run runs f as soon as there is room.
func (b *batch) run(name string, f func(t *testing.T)) {
	b.slots <- struct{}{}
	b.running.Go(func() {
		defer func() { <-b.slots }()
		b.t.Run(name, f)
	})
}

// wait waits for all, which the test must do before it ends.
func (b *batch) wait() { b.running.Wait() }
