//go:build race

package allocator_test

// usual is how many worlds the simulation tries. The race detector needs few: it also reports races that did no harm.
const usual = 40
