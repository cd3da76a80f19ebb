package main

// networkFaults are about links.
var networkFaults []*fault
