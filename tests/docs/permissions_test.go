package docs

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// subjects are the names of subjects in a text, but for that of inboxes.
func subjects(text string) (found []string) {
	for _, m := range find(`(?:leaf\.|\$)[\w$.*]+>?`, text) {
		found = append(found, m[0])
	}
	slices.Sort(found)
	return found
}

// The users in the script that tries the rights have those which the pages give, and no more.
func TestRightsOfThePagesAreTried(t *testing.T) {
	t.Parallel()
	script, security := read(t, "tests/cli/permissions.txtar"), read(t, "SECURITY.md")
	takes := subjects(group(`(?m)^\| takes IDs \|(.*)$`, security))
	for user, want := range map[string][]string{
		"takes":     takes,
		"changes":   append(subjects(group(`(?m)^\| changes tags [^|]*\| also (.*)$`, security)), takes...),
		"auditor":   subjects(group(`(?s)user: auditor,.*?publish: \[(.*?)\]`, security)),
		"generator": subjects(group(`(?s)user: generator,.*?publish: \[(.*?)\]\s+subscribe: \[ "leaf\.>", "\$SRV\.>" \]\s+allow_responses: true`, security)),
		"follows":   subjects(group(`(?s)\| from the stream \| to publish to (.*?)\. Not to `, security) + group(`\| with .--durable. \|(.*)`, security)),
	} {
		subscribe := `, subscribe: "_INBOX\.` + user + `\.>" `
		if user == "generator" {
			subscribe = `\s+subscribe: \[ "leaf\.>", "\$SRV\.>" \], allow_responses: true `
		}
		tried := regexp.MustCompile(`(?s)user: ` + user + `,.*?publish: \[(.*?)\]` + subscribe).FindStringSubmatch(script)
		slices.Sort(want)
		if len(want) < 3 || tried == nil {
			t.Fatalf("the rights of %s are %q in the page, and %q in the script", user, want, tried)
		}
		if diff := cmp.Diff(want, subjects(tried[1])); diff != "" {
			t.Errorf("the rights of %s, -page +script:\n%s", user, diff)
		}
	}
}
