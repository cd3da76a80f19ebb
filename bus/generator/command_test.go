package generator_test

import (
	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/generator"
)

// onEvent is an observer that hears of one kind of event.
type onEvent struct {
	what string
	then func()
}

func (o onEvent) Answered(generator.Answer)     {}
func (o onEvent) Claimed(allocator.Claimed)     {}
func (o onEvent) Refilled(allocator.Refilled)   {}
func (o onEvent) Regressed(allocator.Regressed) {}
func (o onEvent) EventPublished(what string) {
	if what == o.what {
		o.then()
	}
}
