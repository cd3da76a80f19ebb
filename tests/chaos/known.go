package main

// knownViolation is a promise that today's product breaks. The schedule leaves its fault out, and -known runs it.
type knownViolation struct {
	fault          string
	store, servers string // empty: all
	check          string // that finds it
	why            string
}

// known gets shorter when the product is healed.
var known = []knownViolation{
	{
		fault: "pause-fast-clock", check: "paused",
		why: "rules have the wall clock as their version: generators that remember a change by a clock that was ahead ignore " +
			"what operators set after the record was lost",
	},
}
