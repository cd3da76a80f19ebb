package admin

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Severity says how bad a [Finding] is.
type Severity string

// The severities, the worst first.
const (
	Critical Severity = "critical" // callers are refused, or IDs may come twice
	Problem  Severity = "problem"  // an operator must act, before callers are refused
	Warning  Severity = "warning"  // an operator should know
)

// weight orders severities, the worst first.
func (s Severity) weight() int { return slices.Index([]Severity{Critical, Problem, Warning}, s) }

// Worse reports whether s is worse than other.
func (s Severity) Worse(other Severity) bool { return s.weight() < other.weight() }

// Finding is one thing that a generator knows to be wrong: open alerts of one kind, or what it sees
// without an alert.
type Finding struct {
	// Kind is that of the alert, without "leaf.": segment.starved. docs/runbook.md has a section of
	// each.
	Kind     string   `json:"kind"`
	Severity Severity `json:"severity"`
	// Keys are the first of the tags, workers or nodes that it is about, at most 3, and Count is
	// how many there are. A finding about the generator itself has none.
	Keys    []string  `json:"keys,omitempty"`
	Count   int       `json:"count,omitempty"`
	Since   time.Time `json:"since"` // by the generator's clock
	Message string    `json:"message"`
	Do      string    `json:"do"` // what an operator should do
}

// Compare orders findings: the worst first, and of these the newest.
func (f Finding) Compare(other Finding) int {
	return cmp.Or(cmp.Compare(f.Severity.weight(), other.Severity.weight()), other.Since.Compare(f.Since),
		strings.Compare(f.Kind, other.Kind))
}

// Cause is what several generators find: findings of one kind.
type Cause struct {
	Kind     string        `json:"kind"`
	Severity Severity      `json:"severity"` // the worst
	Since    time.Time     `json:"since"`    // the earliest
	Findings []NodeFinding `json:"findings"` // the worst first
}

// NodeFinding is a finding of a generator.
type NodeFinding struct {
	Node string `json:"node"`
	Finding
}

// Causes groups the findings of all generators by their kind. The worst causes come first, and of
// these the newest.
func Causes(states []State) []Cause {
	causes := []Cause{}
	for _, s := range states {
		for _, f := range s.Findings {
			i := slices.IndexFunc(causes, func(c Cause) bool { return c.Kind == f.Kind })
			if i < 0 {
				i, causes = len(causes), append(causes, Cause{Kind: f.Kind, Severity: f.Severity, Since: f.Since})
			}
			c := &causes[i]
			c.Findings = append(c.Findings, NodeFinding{s.Node, f})
			if f.Severity.Worse(c.Severity) {
				c.Severity = f.Severity
			}
			if f.Since.Before(c.Since) {
				c.Since = f.Since
			}
		}
	}
	for _, c := range causes {
		slices.SortFunc(c.Findings, func(x, y NodeFinding) int {
			return cmp.Or(cmp.Compare(x.Severity.weight(), y.Severity.weight()), cmp.Compare(y.Count, x.Count),
				strings.Compare(x.Node, y.Node))
		})
	}
	slices.SortFunc(causes, func(x, y Cause) int {
		return cmp.Or(cmp.Compare(x.Severity.weight(), y.Severity.weight()), y.Since.Compare(x.Since),
			strings.Compare(x.Kind, y.Kind))
	})
	return causes
}
