package main

// installationFaults are about which installation a machine belongs to.
var installationFaults []*fault
