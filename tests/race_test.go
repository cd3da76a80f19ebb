//go:build race

package tests

// raceEnabled says that the program is built with the race detector too.
const raceEnabled = true
