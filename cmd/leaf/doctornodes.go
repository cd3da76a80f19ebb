package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/leafbus/leafbus/bus/admin"
)

// causes returns what the generators find, one line a cause, and the generators that are not ready for no such cause.
func (l look) causes() (found []finding) {
	for _, c := range admin.Causes(l.nodes) {
		if c.Kind == "replicas.few" { // which the look at the streams has
			continue
		}
		first := c.Findings[0]
		nodes := make([]string, len(c.Findings))
		for i, f := range c.Findings {
			nodes[i] = f.Node
		}
		about := strings.Join(nodes, ", ")
		if n := first.Count; n > 0 {
			about += " about " + strings.Join(first.Keys, ", ")
			if more := n - len(first.Keys); more > 0 {
				about += fmt.Sprintf(" and %d more", more)
			}
		}
		f := finding{Check: c.Kind, State: stateProblem, Found: about + ": " + first.Message,
			Fix: first.Do + "; see docs/runbook.md#" + strings.ReplaceAll(c.Kind, ".", "")}
		if c.Severity == admin.Warning {
			f.State = stateWarning
		}
		found = append(found, f)
	}
	for _, s := range l.nodes {
		for _, part := range s.Missing {
			f := finding{Check: "generators", stops: true, Fix: "docs/runbook.md#leafcannotserve",
				Found: fmt.Sprintf("%s lacks its %s: %s", s.Node, part, s.Reasons[part])}
			if len(s.Findings) == 0 {
				f.State = stateProblem
			}
			found = append(found, f)
		}
	}
	return found
}

// alone returns why a service depends on one machine. That only keeps machines from stopping: it may be meant so.
func (l look) alone() (found []finding) {
	if len(l.nodes) == 0 {
		return []finding{{Check: "generators", State: stateProblem, Found: "no generator answers",
			Fix: "start some with leaf serve, on at least two machines", stops: true}}
	}
	for _, name := range []string{"segments", "snowflakes"} {
		able := slices.DeleteFunc(slices.Clone(l.nodes), func(s admin.State) bool {
			return name == "segments" && !s.Segment || name == "snowflakes" && !s.Snowflake
		})
		servers := make(map[string]bool)
		for _, s := range able {
			servers[cmp.Or(s.Server, s.Address)] = true
		}
		if len(able) < 2 || len(servers) < 2 {
			found = append(found, finding{Check: "generators", stops: true,
				Found: fmt.Sprintf("generators that can answer with %s: %d (%s), at %d NATS servers", name, len(able),
					names(able), len(servers)),
				Fix: "start another generator on another machine. In a cluster, generators move to other servers within a " +
					"minute; if not, give each the addresses of several (--server), and make sure that it can reach them"})
		}
	}
	return found
}

func names(nodes []admin.State) string {
	all := make([]string, len(nodes))
	for i, s := range nodes {
		all[i] = s.Node
	}
	return strings.Join(all, ", ")
}
