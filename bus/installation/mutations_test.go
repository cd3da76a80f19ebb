//go:build mutations

package installation

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations demands that a test finds each of these changes, with which generators of two installations would share
// a NATS, a folder, a database or a ZooKeeper, and hand out the same IDs.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name, by string // by finds it
		edits    []mutate.Edit
	}{
		{"the database of another installation is accepted", "TestNothingIsCreatedBesideAnother", []mutate.Edit{{"place.go",
			"if l.of == have.ID {", "if true {"}}},
		{"another database than that on record is accepted", "TestOpenLooksAgain", []mutate.Edit{{"place.go",
			"(noted == \"\" || noted == l.id)", "(noted != \"?\")"}}},
		{"a database that lost its state is free", "TestOpenLooksAgain", []mutate.Edit{{"place.go",
			"	case l.of == \"\" && noted == \"\":", "	case l.of == \"\":"}}},
		{"a folder of another installation is accepted", "TestJoinRefused", []mutate.Edit{{"member.go",
			`case m.known != "" && m.known != f.have.ID:`, "case false:"}}},
		{"another configuration is accepted", "TestJoinRefused", []mutate.Edit{{"member.go",
			"case len(differences(f.have, m.want)) > 0:", "case false:"}}},
		{"a NATS that lost its state begins again at 1", "TestJoinLost", []mutate.Edit{{"member.go",
			"if m.known, m.store, err = c.Folder", "if _, m.store, err = c.Folder"}}},
		{"--adopt with a new folder begins at 1", "TestAdoptRefused", []mutate.Edit{{"member.go",
			"case then == create && m.Adopt: //", "case false: //"}}},
		{"a record that was lost beside its tags is made again", "TestJoinWithoutARecord", []mutate.Edit{{"member.go",
			"case tags:", "case tags && false:"}}},
		{"a record is created beside the database of another installation", "TestNothingIsCreatedBesideAnother",
			[]mutate.Edit{{"decide.go", "		case errors.Is(err, allocator.ErrRefused):\n			return refuse, err", "		case errors.Is(err, allocator.ErrRefused):\n			return r.then, nil"}}},
		{"a new folder does not wait with a witness of the database's installation", "TestNothingIsCreatedBesideAnother",
			[]mutate.Edit{{"member.go", "f.record == tagsLeft || taken())", "f.record == tagsLeft)"}}},
		{"something is created while the owner of a database is not known", "TestWaitsForTheOwner", []mutate.Edit{{"decide.go",
			"			return wait, err\n", "			return r.then, nil\n"}}},
		{"a database is claimed although the record notes another", "TestOpenLooksAgain", []mutate.Edit{{"member.go",
			`*u.noted(&m.have) == ""`, "true"}}},
		{"ZooKeeper is used before its owner is known", "TestClaimedRegistry", []mutate.Edit{{"member.go",
			"if !r.done.Load() {", "if false {"}}},
		{"an old server is used", "TestOldServerIsNotUsed", []mutate.Edit{{"version.go",
			"leastVersion) >= 0 {", "leastVersion) >= -1 {"}}},
		{"an old server is used after a reconnect", "TestOldServerLater", []mutate.Edit{{"version.go",
			"				_ = nc.ForceReconnect() // an error: it is closed\n", ""}}},
		{"a first start with a wrong password waits for ever", "TestMisconfigured", []mutate.Edit{{"member.go",
			"	if errors.Is(err, allocator.ErrMisconfigured) {", "	if false {"}}},
		{"a copy of a folder passes for the original", "TestFolderCopied", []mutate.Edit{{"folder.go",
			"f.Copied = ok && saved.Place != f.Place", "f.Copied = ok && saved.Place != saved.Place"}}},
		{"two generators use one folder", "TestFolder", []mutate.Edit{{"folder.go",
			"	if locked {\n\t\treturn nil", "	if locked || true {\n\t\treturn nil"}}},

		// What a start finds, and what it says.
		{"a generator begins while JetStream is away", "TestRules", []mutate.Edit{{"decide.go",
			"	{free, away, wait, \"\"},", "	{free, away, create, \"\"},"}}},
		{"a refusal does not say how a lost database is made again", "TestSentences", []mutate.Edit{{"place.go",
			"l.Repair(have.ID, noted)", "l.Repair(have.ID, l.id)"}}},
		{"a start asks the ZooKeeper that it knows", "TestJoin$", []mutate.Edit{{"member.go",
			" && f.have.ZooKeeper == \"\" {", " {"}}},
		{"a record that was made meanwhile is not seen", "TestJoinMeanwhile", []mutate.Edit{{"member.go",
			"			f = m.look(ctx) // another", "			// another"}}},
		{"a record that came while the others were asked is not seen", "TestJoinLooksAgain", []mutate.Edit{{"member.go",
			"begun, lost, err = true, begin(ctx), nil", "begun, err = true, begin(ctx)"}}},
		{"two databases belong to one installation", "TestTwoDatabasesAtOnce", []mutate.Edit{{"member.go",
			"err := l.check(*have) // another", "err := ctx.Err() // another"}}},
		{"--adopt forgets the database", "TestAdoptWithoutTheDatabase", []mutate.Edit{{"member.go",
			"m.want, m.known, m.store //", "m.want, m.known, m.want.Store //"}}},
		{"an installation begins with a layout that soon ends", "TestLayoutThatEnds", []mutate.Edit{{"member.go",
			"CheckLife(time.Now().UnixMilli()); err != nil {", "CheckLife(time.Now().UnixMilli()); false && err != nil {"}}},
		{"the worker of another configuration goes on", "TestResumes", []mutate.Edit{{"member.go",
			"m.store != m.want.Store || ok && saved.Layout != m.want.Layout", "ok && saved.Place == m.store"}}},
		{"an empty store is not reported", "TestEmptyStoreIsReported", []mutate.Edit{{"folder.go",
			"len(streams) == 0", "len(streams) < 0"}}},
		{"a worker's file that cannot be read is a new one", "TestFolderCannotBe", []mutate.Edit{{"folder.go",
			"snowflake.OpenFile(f.File(\"worker\")); err != nil {", "snowflake.OpenFile(f.File(\"worker\")); f.Worker == nil && err == nil {"}}},
		{"a name that ends no subject is a node's", "TestNodeName", []mutate.Edit{{"folder.go",
			"len(name) <= MaxNode && ", ""}}},
		{"a folder in an emptyDir seems to last", "TestTemporary", []mutate.Edit{{"folder.go",
			"case strings.Contains(source, \"kubernetes.io~empty-dir\"):", "case strings.Contains(source, \"?\"):"}}},
		{"a pre-release is used", "TestCheckVersion", []mutate.Edit{{"version.go",
			`leastVersion = "v2.11.0"`, `leastVersion = "v2.11.0-0"`}}},
		{"a server that is slow once is not used", "TestConnectToASlowServer", []mutate.Edit{{"version.go",
			"for range slowTries {", "for range 1 {"}}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{}.Run(t, m.by, m.edits...) })
	}
}
