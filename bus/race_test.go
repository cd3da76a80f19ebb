//go:build race

package bus

// raceEnabled says that the program is built with the race detector too.
const raceEnabled = true
