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
		{"an audit that finds something is success", "TestScripts/audit", mutate.Edit{"audit.go",
			"		if n := len(r.Contradictions); n > 0 {\n			err =", "		if n := 0; n > 0 {\n			err ="}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{Package: "."}.Run(t, m.by, m.edit) })
	}
}
