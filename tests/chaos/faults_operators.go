package main

// operatorFaults are what operators do.
var operatorFaults []*fault
