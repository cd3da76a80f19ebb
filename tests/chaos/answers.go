package main

import (
	"encoding/json"
	"fmt"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
)

// contradictions reads the JSON of leaf audit.
func contradictions(stdout string) ([]audit.Contradiction, error) {
	var report struct {
		Tags           []json.RawMessage
		Contradictions []audit.Contradiction
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		return nil, fmt.Errorf("leaf audit printed no JSON: %w", err)
	}
	if len(report.Tags) == 0 {
		return nil, fmt.Errorf("leaf audit compared no tag: %s", stdout)
	}
	return report.Contradictions, nil
}

// readRevealed reads the JSON of leaf tag reveal: the number of each ID.
func readRevealed(stdout string) (map[bus.ID]bus.ID, error) {
	var answer struct{ IDs []struct{ ID, Number bus.ID } }
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil {
		return nil, fmt.Errorf("leaf tag reveal printed no JSON: %w", err)
	}
	numbers := make(map[bus.ID]bus.ID)
	for _, x := range answer.IDs {
		numbers[x.ID] = x.Number
	}
	return numbers, nil
}

// compareNumbers says what is wrong with the numbers of IDs that callers got; empty: nothing is.
func compareNumbers(before map[bus.ID]bus.ID, ids []bus.ID, numbers map[bus.ID]bus.ID, end bus.ID) string {
	owner := make(map[bus.ID]bus.ID)
	for _, id := range ids {
		number, ok := numbers[id]
		old, known := before[id]
		other, twice := owner[number]
		owner[number] = id
		switch {
		case !ok:
			return fmt.Sprintf("ID %d, which a caller got, has no number", id)
		case known && number != old:
			return fmt.Sprintf("ID %d has the number %d, and had %d", id, number, old)
		case twice:
			return fmt.Sprintf("IDs %d and %d have the same number %d", other, id, number)
		case number < 1 || number >= end:
			return fmt.Sprintf("ID %d, which a caller got, has the number %d, and the record ends below %d", id, number, end)
		}
	}
	return ""
}
