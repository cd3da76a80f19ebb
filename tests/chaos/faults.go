package main

import "slices"

// faults are all that the schedule can choose from.
var faults = slices.Concat(processFaults, networkFaults, machineFaults, databaseFaults, registryFaults, recordFaults,
	installationFaults, operatorFaults, commandFaults)

// What faults harm: two at a time never harm the same.
const (
	harmsJetStream = "jetstream" // its streams, and enough servers to lead them
	harmsDatabase  = "database"
	harmsRows      = "rows"  // rows get lost, also those of a tag that was just made; a deleted tag may be back
	harmsRules     = "rules" // limits, quotas and pauses of tags
	harmsFolders   = "folders"

	// After a loss of the registry, snowflakes are unique only if clocks are right, and if generators that serve callers
	// hear each other (docs/guarantees.md).
	harmsRegistry = "registry"
	harmsClocks   = "clocks"
	harmsNetwork  = "network"
)
