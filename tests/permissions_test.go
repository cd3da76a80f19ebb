package tests

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The users of the table in SECURITY.md can do what the table says, and those in its first row no more.
func TestPermissionsOfSecurity(t *testing.T) {
	t.Parallel()
	var rights []string
	for _, row := range regexp.MustCompile("(?m)^\\| .* \\| (.*) \\| `_INBOX.>` \\|$").FindAllStringSubmatch(topFile(t, "SECURITY.md"), -1) {
		subjects := ""
		if strings.HasPrefix(row[1], "also ") {
			subjects = rights[len(rights)-1]
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			subjects += ` "` + m[1] + `",`
		}
		rights = append(rights, subjects)
	}
	if len(rights) != 2 {
		t.Fatalf("the table has the rights %q", rights)
	}
	conf := filepath.Join(t.TempDir(), "nats.conf")
	writeFile(t, conf, `authorization { users: [
		{ user: all, password: p }
		{ user: takes, password: p, permissions: { publish: [`+rights[0]+` ], subscribe: "_INBOX.>" } }
		{ user: changes, password: p, permissions: { publish: [`+rights[1]+` ], subscribe: "_INBOX.>" } }
	] }`)
	url := newNATSFrom(t, conf).ClientURL()
	g := serve(t, t.TempDir(), "-s", url, "--user", "all", "--password", "p", "--tag", "order:100")
	as := func(user string) string {
		t.Helper()
		return "-s " + url + " --password p --user " + user
	}
	id := strings.TrimSpace(leafOK(t, append([]string{"snowflake"}, strings.Fields(as("takes"))...)...))
	for _, user := range []string{"takes", "changes"} {
		for _, line := range []string{"get order", "get order -n 100000", "decode " + id, "snowflake -n 5000"} {
			leafOK(t, strings.Fields(line+" "+as(user))...)
		}
	}
	for _, line := range []string{
		"tag add coupon", "tag add invoice --order strict", "tag add gift --opaque", "tag list", "tag show coupon", "tag set coupon --quota 10/s", "tag pause coupon",
		"tag resume coupon", "tag advance --all", "tag reveal gift 5", "tag export", "tag rm coupon --yes", "workers", "trace order 1", "bench order --requests 5",
	} {
		leafOK(t, strings.Fields(line+" "+as("changes"))...)
		if !strings.HasPrefix(line, "bench") {
			leaf(t, strings.Fields(line+" "+as("takes"))...).want(t, 1, "may not publish to")
		}
	}
	if out := leafOK(t, strings.Fields("nodes "+as("changes"))...); !strings.Contains(out, g.node) {
		t.Errorf("leaf nodes prints %s", out)
	}
	leaf(t, strings.Fields("nodes "+as("takes"))...).want(t, 1, "may not publish to $SRV.STATS.leaf")
}
