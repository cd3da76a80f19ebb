package main

import "slices"

// knownViolation is a promise that today's product breaks. The schedule leaves its fault out, and -known runs it.
type knownViolation struct {
	fault          string
	store, servers string // empty: all
	check          string // that finds it
	why            string
}

// known gets shorter when the product is healed.
var known []knownViolation

func (k knownViolation) fits(cfg config) bool {
	return (k.store == "" || k.store == cfg.store) && (k.servers == "" || k.servers == cfg.servers)
}

// isKnown reports whether a fault is known to break a promise of this installation.
func (cfg config) isKnown(fault string) bool {
	return slices.ContainsFunc(known, func(k knownViolation) bool { return k.fault == fault && k.fits(cfg) })
}
