//go:build mutations

package faults

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// says is how a row fails. Seeds, what callers met, and a program that cannot be built are no failures of a row.
const says = `(?m)^\s+\w+\.go:\d+: ` +
	`((?:waited|answered|ID \d|max_id|an opaque tag|\d+ requests|leaf audit|the processes|the network|"|\w+: ).*)`

// TestMutations demands that a row finds each of these breaks of a promise, in a real process. Packages find smaller
// ones. `make mutations` runs it.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name  string
		by    string // the row
		edits []mutate.Edit
	}{
		{"a record accepts a range below its end", "the_database_is_set_back,_and_all_that_knew_better_are_gone/mysql",
			[]mutate.Edit{
				{"../../allocator/claims.go", "s.Step, max(s.MaxID, from))", "s.Step, 1)"},
				{"../../allocator/claims.go", ".check(max(s.MaxID, from))", ".check(1)"},
				{"../../allocator/claims.go", "if claim.First < c.cfg.Index.End(s.Name) {", "if false {"},
				{"../../allocator/record.go", "	if c.First < t.MaxID {", "	if false {"},
			}},
		{"what a generator claimed itself does not count", "JetStream_is_set_back/kv,_one_generator",
			[]mutate.Edit{{"../../allocator/index.go", "	return x.of[tag].end\n", "	return min(x.of[tag].end, 0)\n"}}},
		{"a tag in JetStream is claimed without compare-and-set", "generators_are_killed,_and_come_back/kv,_three_generators",
			[]mutate.Edit{{"../../bus/kvstore/records.go",
				"data, jetstream.WithExpectLastSequencePerSubject(revision))", "data)"}}},
		{"a change does not name a generator that is not heard", "max_id_moves_while_a_generator_stands_still/kv",
			[]mutate.Edit{{"../../bus/generator/exchange.go",
				"here, unheard = x.group.members(now)", "here, _ = x.group.members(now)"}}},
		{"a generator that stood still asks for no floor", "max_id_moves_while_a_generator_stands_still/kv",
			[]mutate.Edit{{"../../bus/generator/away.go",
				"	return isAway && g == gateNATS || a.lessons[theRecords].shut(now)\n", "	return false\n"}}},
		{"the age of a command does not count", "a_command_comes_late/kv",
			[]mutate.Edit{{"../../bus/generator/away.go",
				"	return contact(a.state.Load()) != stateAway && (a.back", "	return true || (a.back"}}},
		{"requests of a standstill are answered", "callers_gave_up_during_a_standstill/kv",
			[]mutate.Edit{{"../../bus/generator/away.go", "tooOld = 2 * time.Second", "tooOld = time.Hour"}}},
		{"a newcomer makes a second installation", "the_record_of_the_installation_is_lost/kv,_one_generator",
			[]mutate.Edit{{"../../bus/generator/identity.go", `		if b.Installation != "" {`, "		if false {"}}},
		{"a new key is made where it was lost", "the_keys_of_opaque_tags_are_lost/kv,_one_generator",
			[]mutate.Edit{{"../../bus/kvstore/keys.go", "		case sign != \"\":\n", "		case sign == \"?\":\n"}}},
		{"a damaged record counts as none", "a_record_is_damaged/kv,_one_generator",
			[]mutate.Edit{{"../../bus/kvstore/tagrecord.go",
				"		return unread, err\n",
				"		return allocator.Stored{}, nil\n"}}},
	} {
		t.Run(m.name, func(t *testing.T) {
			mutate.Runner{By: "TestFaults/" + m.by, Says: says, Package: "."}.Run(t, "", m.edits...)
		})
	}
}

// TestMutationsOfSecrets demands that tests beside the table find these.
func TestMutationsOfSecrets(t *testing.T) {
	for _, m := range []struct {
		name, by string
		edit     mutate.Edit
	}{
		{"generators read keys where callers listen", "TestNoInboxShowsKeys", mutate.Edit{"../../internal/wire/wire.go",
			"SubjectInbox = \"leaf.internal.inbox\"", "SubjectInbox = \"_INBOX.x\""}},
		{"systemd does not hear that a generator is alive", "TestSystemdIsNotified", mutate.Edit{"../../cmd/leaf/stop.go",
			"s.notify(\"WATCHDOG=1\")", "s.notify(\"WATCHDOG=0\")"}},
		{"a file of tokens that is empty counts", "TestSecretsOfHTTPRotate", mutate.Edit{"../../cmd/leaf/reread.go",
			"			failed = err.Error()\n", "			failed = err.Error()\n			r.value.Store(&value)\n"}},
		{"a new password of NATS takes a restart", "TestSecretsOfNATSRotate/a_password", mutate.Edit{"../../internal/cli/identity.go",
			"	reread := Reread(path)\n	var last", "	reread := Reread(\"\")\n	var last"}},
		{"a new password of the embedded server takes a restart", "TestPasswordOfTheEmbeddedServerRotates", mutate.Edit{
			"../../internal/cli/identity.go", "	reread := Reread(path)\n	var last", "	reread := Reread(\"\")\n	var last"}},
		{"a reload of the embedded server ends it", "TestOneUserIsCutOff/the_server_in_a_generator", mutate.Edit{
			"../../cmd/leaf/servenats.go", "signal.Notify(hangups, syscall.SIGHUP)", "signal.Notify(hangups, syscall.SIGUSR2)"}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{Package: "."}.Run(t, m.by, m.edit) })
	}
}
