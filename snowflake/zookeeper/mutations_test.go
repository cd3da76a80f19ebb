//go:build mutations

package zookeeper

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations demands that a test finds each break of a promise. It checks the tests, not the code: `make mutations`.
func TestMutations(t *testing.T) {
	runner := mutate.Runner{By: "TestConformance", Says: `(?m)^\s+(cases|suite)\.go:\d+: (.*)`}
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) { runner.Run(t, m.by, append(m.edits, soon...)...) })
	}
}

// soon keeps a test that waits in vain from using up the time that it may take.
var soon = []mutate.Edit{
	{"../../internal/testkit/testkit.go", "const Patience = 40 * time.Second", "const Patience = 15 * time.Second"},
	{"../snowflaketest/suite.go", "var timeout = 30 * time.Second", "var timeout = 5 * time.Second"},
}

var mutations = []struct {
	name  string
	by    string // the test that finds it, if that is not the conformance suite
	edits []mutate.Edit
}{
	// The compare-and-set.
	{"a write does not look at the version", "", []mutate.Edit{{"records.go",
		"Version: now.version}", "Version: -1}"}}},
	{"a record that was made again counts as the one before", "TestMadeAgain", []mutate.Edit{{"records.go",
		"Version: uint64(s.Mzxid),", "Version: uint64(s.Version) + 1,"},
		{"records.go", "made := done[0].Stat.Mzxid", "made := int64(1)"},
		{"records.go", "Version: uint64(done[0].Stat.Mzxid)", "Version: uint64(done[0].Stat.Version) + 1"}}},
	{"a record that is not there, or another one, may be put", "", []mutate.Edit{{"records.go",
		"if version == 0 || known.Version != version {", "if known.name == \"\" {"}}},
	{"a lost answer of a report counts as a conflict", "TestLostAnswers", []mutate.Edit{{"records.go",
		"case errors.Is(err, zk.ErrBadVersion)", "case errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrBadVersion)"}}},
	{"a caller that has left gets a worker", "TestAddAfterTheCallerLeft", []mutate.Edit{{"records.go",
		"return all, ctx.Err() //", "return all, nil //"}}},

	// The installation's ID.
	{"the workers of another installation are used", "TestClaim", []mutate.Edit{{"installation.go",
		"case err != nil || have.ID != installation:", "case err != nil:"}}},
	{"what belongs to no installation is taken unasked", "TestClaim", []mutate.Edit{{"installation.go",
		"case errors.Is(err, errNoOwner) && !first:", "case false:"}}},
	{"an installation of another layout is used", "TestClaimOtherLayout", []mutate.Edit{{"installation.go",
		"if d := have.Differences(r.cfg.Layout); len(d) > 0 {", "if d := have.Differences(r.cfg.Layout); false {"}}},
	{"a claim that another generator's came before fails", "TestClaimAtOnce", []mutate.Edit{{"installation.go",
		"err != nil && !errors.Is(err, zk.ErrNodeExists) {\n					return have", "err != nil {\n					return have"}}},
	{"a right that is missing is an outage", "TestClaimForbidden", []mutate.Edit{{"installation.go",
		"if errors.Is(err, zk.ErrNoAuth) {", "if false {"}}},
	{"a repair lacks the ID of the ZooKeeper", "TestRepair", []mutate.Edit{{"installation.go",
		"\\ncreate %[2]s/%[4]s ''\", r.root", "\\ncreate %[2]s/%[4]s. ''\", r.root"}}},
	{"a damaged record of the installation counts", "TestClaimDamaged", []mutate.Edit{{"installation.go",
		"err != nil || have.ID == \"\" || have.ZooKeeper == \"\" ||", "err != nil ||"}}},
	{"the ID of a ZooKeeper may be gone", "TestClaim", []mutate.Edit{{"installation.go",
		"if !there { // not for us", "if !there && false { // not for us"}}},
	{"a write does not prove that it leads to the claimed ZooKeeper", "TestClaim", []mutate.Edit{{"registry.go",
		"where := &zk.CheckVersionRequest{Path: r.installation + \"/\" + r.id,", "where := &zk.CheckVersionRequest{Path: r.root,"}}},
	{"a new session is not asked which ZooKeeper it leads to", "TestElsewhere", []mutate.Edit{{"registry.go",
		"if c.admitted {", "if true {"}}},
	{"the ID of a ZooKeeper is not compared", "TestElsewhere", []mutate.Edit{{"registry.go",
		"errors.Is(err, errNoOwner) || err == nil && have.ZooKeeper != r.id", "errors.Is(err, errNoOwner) || have.ZooKeeper == r.root"}}},

	{"a server that lags behind is not asked to catch up", "TestReadsAreSynced", []mutate.Edit{{"installation.go",
		"if _, err := c.conn.Sync(rootFolder); err != nil {", "if err := error(nil); err != nil {"}}},
	{"a list is of a server that lags behind", "TestReadsAreSynced", []mutate.Edit{{"records.go",
		"if _, err := c.conn.Sync(r.forever); err != nil && !errors.Is(err, zk.ErrNoNode) {", "if err := error(nil); err != nil {"}}},

	// Nodes.
	{"a new session has no temporary node", "TestEveryStep", []mutate.Edit{{"registry.go",
		"if c.leased ||", "if r.known[rec.Worker].version > 1 ||"}}},
	{"a worker whose node was deleted comes again at once", "TestNumbers", []mutate.Edit{{"records.go",
		"choice.First + (all.made+tried)%n", "choice.First + tried"}}},
	{"two generators may add at once", "", []mutate.Edit{{"records.go",
		"Path: r.forever, Version: all.version}", "Path: r.forever, Version: -1}"}}},
	{"the younger of two nodes of a worker counts", "TestYoungerNode", []mutate.Edit{{"records.go",
		"!ok || n.created < other.created", "!ok || n.created > other.created"}}},
	{"a worker is added beside a damaged node", "TestDamagedNode", []mutate.Edit{{"records.go",
		"if all.damaged != \"\" {", "if false {"}}},
	{"a record without an incarnation counts", "TestDecodeRefuses", []mutate.Edit{{"records.go",
		" || d.Incarnation == \"\" ||", " ||"}}},
	{"a worker below 0 counts", "TestDecodeRefuses", []mutate.Edit{{"records.go",
		" || *d.Worker < 0 ||", " ||"}}},

	// The connection.
	{"an address may have no port", "TestParseHosts", []mutate.Edit{{"link.go",
		"err != nil || n < 1 || n > 65535 {", "err != nil || n > 65535 {"}}},
	{"an answer that never comes is waited for", "TestEveryStep", []mutate.Edit{{"link.go",
		"		l.log.Warn(\"ZooKeeper does not answer a request: connecting again\")\n		l.drop(c)\n", ""}}},
	{"each client begins at the server that the last one hung on", "TestOneAddressHangs", []mutate.Edit{{"link.go",
		"	l.next++\n", ""}}},
	{"Close does not wait for what was asked", "TestClose", []mutate.Edit{{"link.go",
		"	l.closing.Wait()\n	l.busy <- struct{}{}\n	<-l.busy\n", "	l.closing.Wait()\n"}}},
}
