//go:build mutations

package main

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations demands that a test finds each of these changes, which break what a user of the program relies on: exit
// statuses, settings, output, and confirmations.
func TestMutations(t *testing.T) {
	const cli = "../../internal/cli/"
	for _, m := range []struct {
		name, by string // by finds it
		edit     mutate.Edit
	}{
		{"no NATS server is a failure like any other", "TestScripts/get", mutate.Edit{cli + "connect.go",
			"return Nobody{fmt.Errorf(\"no NATS server at %s: start one with `leaf serve`, or name yours with --server\", at)}",
			"return fmt.Errorf(\"no NATS server at %s: start one with `leaf serve`, or name yours with --server\", at)"}},
		{"no generator is a failure like any other", "TestScripts/get", mutate.Edit{cli + "program.go",
			"errors.Is(err, nats.ErrNoResponders) && !ofJetStream", "errors.Is(err, nats.ErrNoResponders) && ofJetStream"}},
		{"a table that was not written is success", "TestScripts/get", mutate.Edit{cli + "session.go",
			"	return cmp.Or(s.Out.Flush(), err)", "	s.Out.Flush()\n	return cmp.Or(err)"}},
		{"a denial is not named", "TestScripts/permissions", mutate.Edit{cli + "session.go",
			"		return cause\n", "		return errInterrupted\n"}},
		{"what was decoded is lost when the next fails", "TestDecodedBeforeAFailure", mutate.Edit{"decode.go",
			"			break\n", "			return failed\n"}},
		{"IDs that are cut off are no JSON", "TestScripts/get", mutate.Edit{"get.go",
			"		fmt.Fprintf(w.w, \"],\\\"written\\\":%d}\\n\", w.written)\n", ""}},
		{"a file loses its content although no ID comes", "TestScripts/get", mutate.Edit{"get.go",
			"	for r, failure := range ranges {\n", "	for r, failure := range ranges {\n		_ = os.Truncate(f.output, 0)\n"}},
		{"a tag is deleted without --yes", "TestScripts/tag", mutate.Edit{"tag.go", "		if !yes {", "		if false {"}},
		{"a worker is released without --yes", "TestScripts/workers", mutate.Edit{"workers.go",
			"	if !yes {", "	if false {"}},
		{"a dry run changes tags", "TestScripts/tag_apply", mutate.Edit{"tagapply.go",
			"	case a.Created && all.DryRun:", "	case false:"}},
		{"tags that failed are success", "TestAnswers", mutate.Edit{"tagmany.go",
			"	if len(failed) > 0 {", "	if false {"}},
		{"a backup replaces a file by itself", "TestScripts/backup", mutate.Edit{"backup.go",
			"err == nil && !force {", "err == nil && false {"}},
		{"the time of a stop overflows, and a stop drops all requests", "TestServeRefuses", mutate.Edit{"serve.go",
			"10*time.Second, 0, 24*time.Hour,", "10*time.Second, 0, 1<<63-1,"}},
		{"a replica that was just killed is well", "TestLook", mutate.Edit{"doctorlook.go",
			"case r.Offline, r.Active > replicaSilent:", "case r.Offline:"}},
		{"a machine may stop before a replica that was killed is silent", "TestWait", mutate.Edit{"doctor.go",
			"time.Since(well) >= settleFor:", "time.Since(well) >= 0:"}},
		{"a field that no tag has is ignored", "TestParseTagFileRefuses", mutate.Edit{"tagfile.go",
			"for field := range entry.Others {", "for field := range map[string]any(nil) {"}},
		{"a worker of another data centre is taken", "TestWorkers", mutate.Edit{"worker.go",
			"from < first || to > last ||", "from < 0 || to >= l.Workers() ||"}},
		{"a process that only a restart helps says that it is alive", "TestWatchdogOfADeadProcess", mutate.Edit{"stop.go",
			"if dead() == nil {", "if dead(); true {"}},
		{"a flag of leaf serve is no setting", "TestSettings", mutate.Edit{"serve.go",
			"	cli.Settings(fs, cli.GroupCommand, func(fs *pflag.FlagSet) {\n		fs.BoolVar(&f.look, \"check\"",
			"	cli.Settings(fs, cli.GroupCommand, func(*pflag.FlagSet) {\n		fs.BoolVar(&f.look, \"check\""}},
		{"an event sends commands to the terminal", "TestEventLine", mutate.Edit{"events.go",
			"return cli.Safe(strings.TrimRight(", "return (strings.TrimRight("}},
		{"an ID that came twice is not reported", "TestReportOfALoad", mutate.Edit{"benchload.go",
			"kept := b.seen.Add(own...)", "kept := b.seen.Add(own[1:]...)"}},
		{"two claims of an ID are success", "TestTwoClaimsOfAnID", mutate.Edit{"trace.go",
			"if len(t.Claims) > 1 {", "if false {"}},
		{"workers of a second page are not listed", "TestPagesOfWorkers", mutate.Edit{"workers.go",
			"err == nil && page.Next > 0;", "err == nil && page.Next > 1<<40;"}},
		{"what failed is not known to the stop", "TestTogetherEndsItsContext", mutate.Edit{"stop.go",
			"		stop(err)", "		stop(nil)"}},
		{"a stop that hangs never ends", "TestStopThatHangs", mutate.Edit{"stop.go",
			"			end()\n", ""}},
		{"a stop that is over ends the process", "TestStopThatHangs", mutate.Edit{"stop.go",
			"return func() { close(done) }", "return func() {}"}},
		{"an audit that finds something is success", "TestScripts/audit", mutate.Edit{"audit.go",
			"		if n := len(r.Contradictions); n > 0 {\n			err =", "		if n := 0; n > 0 {\n			err ="}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{Package: "."}.Run(t, m.by, m.edit) })
	}
}
