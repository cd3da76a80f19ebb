package main

// machineFaults are about clocks and disks.
var machineFaults []*fault
