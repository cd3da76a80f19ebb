package main

import "testing"

// No two faults of a round harm the same, or one what the other touches. The seed alone decides.
func TestPlan(t *testing.T) {
	from := []*fault{
		{name: "wipe", harms: []string{"registry", "network"}},
		{name: "clock", harms: []string{"clock"}, touches: []string{"registry"}},
		{name: "clock of a server", harms: []string{"clock"}},
		{name: "slow", touches: []string{"network"}},
		{name: "silent", touches: []string{"network"}},
		{name: "kill", weight: 5},
		{name: "rolling", alone: true},
	}
	never := map[string]bool{
		"clock + wipe": true, "slow + wipe": true, "silent + wipe": true, "clock + clock of a server": true,
	}
	met := make(map[string]bool)
	for seed := range uint64(3000) {
		w := &world{cfg: config{seed: seed}}
		r := w.plan(1, from)
		if again := w.plan(1, from); again.names() != r.names() {
			t.Errorf("seed %d: %s, and then %s", seed, r.names(), again.names())
		}
		for i, s := range r {
			for _, o := range r[:i] {
				pair := round{s, o}
				met[pair.names()] = true
				if never[pair.names()] || s.alone || o.alone || s.fault == o.fault {
					t.Errorf("seed %d: %s", seed, pair.names())
				}
			}
		}
	}
	for _, pair := range []string{"silent + slow", "clock + slow", "clock of a server + wipe", "kill + wipe"} {
		if !met[pair] {
			t.Errorf("never: %s", pair)
		}
	}
}
