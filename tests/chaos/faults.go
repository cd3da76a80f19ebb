package main

import "slices"

// faults are all that the schedule can choose from.
var faults = slices.Concat(processFaults, networkFaults, machineFaults, databaseFaults, registryFaults, recordFaults,
	installationFaults, operatorFaults, commandFaults)
