package main

import "slices"

// knownViolation is a promise that today's product breaks. The schedule leaves its fault out, and -known runs it.
type knownViolation struct {
	fault          string
	store, servers string   // empty: all
	checks         []string // any of these finds it
	why            string
	rare           bool // its fault alone seldom shows it, so -known does not demand it
}

// known gets shorter when the product is healed.
var known = []knownViolation{
	{
		fault: "clock-ahead-alert", store: "mysql", servers: "joined", checks: []string{"alert"}, rare: true,
		why: "An alert from a clock that was ahead has no end when its generator stops for good.",
	},
}

func (k knownViolation) fits(cfg config) bool {
	return (k.store == "" || k.store == cfg.store) && (k.servers == "" || k.servers == cfg.servers)
}

// isKnown reports whether a fault is known to break a promise of this installation.
func (cfg config) isKnown(fault string) bool {
	return slices.ContainsFunc(known, func(k knownViolation) bool { return k.fault == fault && k.fits(cfg) })
}

// leavesOut reports whether what a fault breaks is known, and this is not the run that must find it. Other faults break
// the same promise by the way, also where this one cannot strike.
func (cfg config) leavesOut(fault string) bool {
	return !slices.Contains(cfg.faults, fault) &&
		slices.ContainsFunc(known, func(k knownViolation) bool { return k.fault == fault })
}
