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
			"case semver.Compare(v, leastVersion) < 0:", "case false:"}}},
		{"an old server is used after a reconnect", "TestOldServerLater", []mutate.Edit{{"version.go",
			"				_ = nc.ForceReconnect() // an error: it is closed\n", ""}}},
		{"a first start with a wrong password waits for ever", "TestMisconfigured", []mutate.Edit{{"member.go",
			"	if errors.Is(err, allocator.ErrMisconfigured) {", "	if false {"}}},
		{"a copy of a folder passes for the original", "TestFolderCopied", []mutate.Edit{{"folder.go",
			"f.Copied = ok && saved.Place != f.Place", "f.Copied = ok && saved.Place != saved.Place"}}},
		{"two generators use one folder", "TestFolder", []mutate.Edit{{"folder.go",
			"	if locked {\n\t\treturn nil", "	if locked || true {\n\t\treturn nil"}}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{}.Run(t, m.by, m.edits...) })
	}
}
