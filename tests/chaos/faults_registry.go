package main

// registryFaults are about ZooKeeper.
var registryFaults []*fault
