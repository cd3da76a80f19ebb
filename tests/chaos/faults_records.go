package main

// recordFaults are about what JetStream and the database keep, and the files of generators.
var recordFaults []*fault
