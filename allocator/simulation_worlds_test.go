//go:build !race

package allocator_test

// usual is how many worlds the simulation tries.
const usual = 2000
