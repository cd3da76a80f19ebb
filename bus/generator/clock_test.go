package generator_test

import (
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
)

// clock is a machine's clock that only moves when the test says so.
type clock struct {
	start      int64        // Unix ms
	wall, mono atomic.Int64 // ms since then
}

func newClock() *clock { return &clock{start: time.Now().UnixMilli()} }

func (c *clock) read() snowflake.Reading {
	return snowflake.Reading{Wall: c.now(), Mono: c.mono.Load()}
}

// now is what the wall clock says.
func (c *clock) now() int64 { return c.start + c.wall.Load() }

// pass lets time pass.
func (c *clock) pass(d time.Duration) {
	c.mono.Add(d.Milliseconds())
	c.step(d)
}

// step sets the wall clock, as an operator or NTP does.
func (c *clock) step(d time.Duration) { c.wall.Add(d.Milliseconds()) }

// on gives a generator a clock, and a registry that it may share with others.
func on(c *clock, registry snowflake.Registry) func(*generator.Config) {
	return func(cfg *generator.Config) {
		cfg.Snowflake.Clock, cfg.Snowflake.Registry = c.read, registry
		cfg.MaxWait = testkit.Patience
	}
}
