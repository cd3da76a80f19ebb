package tests

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// applied is what leaf tag apply --json prints.
type applied struct {
	Tags []struct {
		Tag     string   `json:"tag"`
		Created bool     `json:"created"`
		Changes []string `json:"changes"`
	} `json:"tags"`
	Unchanged int  `json:"unchanged"`
	DryRun    bool `json:"dry_run"`
	Failed    []struct {
		Tag   string `json:"tag"`
		Error string `json:"error"`
	} `json:"failed"`
}

// A file creates what is missing and changes what differs. What fails holds up nothing else.
func TestTagApply(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order:50")
	leafOK(t, "tag", "set", "order", "--max-id", "5000", "--quota", "10/s", "--description", "old", "-s", g.url)
	leafOK(t, "tag", "add", "invoice", "--order", "strict", "-s", g.url)
	file := filepath.Join(t.TempDir(), "tags.yaml")
	apply := func(status int, text string, args ...string) result {
		t.Helper()
		writeFile(t, file, text)
		r := leaf(t, append([]string{"tag", "apply", "-f", file, "-s", g.url}, args...)...)
		r.want(t, status)
		return r
	}
	const text = `
tags:
  - {tag: order, max_id: 4000, step: 60, quota: none, limit: 2147483647}
  - {tag: invoice, order: trend, step: 5}
  - {tag: fresh, max_id: 700, outlast: 1h, paused: true}
  - {tag: ledger, order: strict}
`
	before := leafOK(t, "tag", "list", "--json", "-s", g.url)
	r := apply(1, text, "--dry-run")
	if want := "would change order: step 50 → 60, quota 10/s burst 10 → none, limit none → 2147483647\n" +
		"would create fresh\nwould create ledger\nnothing was done. 4 tags: 2 to create, 1 to change, 0 unchanged, 1 would fail\n"; r.stdout != want {
		t.Errorf("a dry run prints %q, want %q", r.stdout, want)
	}
	r.want(t, 1, "1 of 4 tags were not applied", "invoice: its order is strict, for life")
	if after := leafOK(t, "tag", "list", "--json", "-s", g.url); after != before {
		t.Errorf("a dry run made %s of %s", after, before)
	}

	r = apply(1, text)
	if want := "changed order: step 50 → 60, quota 10/s burst 10 → none, limit none → 2147483647\ncreated fresh\ncreated ledger\n" +
		"4 tags: 2 created, 1 changed, 0 unchanged, 1 failed\n"; r.stdout != want {
		t.Errorf("it prints %q, want %q", r.stdout, want)
	}
	r.want(t, 1, "invoice: its order is strict, for life")
	again := parse[applied](t, []byte(apply(1, text, "--json").stdout))
	if len(again.Tags) > 0 || again.Unchanged != 3 || len(again.Failed) != 1 || again.Failed[0].Tag != "invoice" {
		t.Errorf("the second time: %+v", again)
	}
	for tag, want := range map[string]string{
		"order":   `{"tag":"order","max_id":"5000","step":60,"description":"old","limit":"2147483647"}`,
		"invoice": `{"tag":"invoice","max_id":"1","step":0,"description":"","order":"strict"}`,
		"fresh":   `{"tag":"fresh","max_id":"700","step":1000,"description":"","paused":true,"outlast":"1h"}`,
		"ledger":  `{"tag":"ledger","max_id":"1","step":0,"description":"","order":"strict"}`,
	} {
		got := strings.TrimSpace(leafOK(t, "tag", "show", tag, "--json", "-s", g.url))
		got = regexp.MustCompile(`"updated":"[^"]+",?`).ReplaceAllString(got, "")
		got = strings.Replace(got, ",}", "}", 1)
		if got != want {
			t.Errorf("%s is %s, want %s", tag, got, want)
		}
	}

	// A bad file changes nothing, however late the mistake comes.
	before = leafOK(t, "tag", "list", "--json", "-s", g.url)
	apply(2, "tags:\n- {tag: order, step: 70}\n- tag: x\n  stp: 1\n").want(t, 2, file+": line 4: stp: a tag has no such field")
	leaf(t, "tag", "apply", "-f", filepath.Join(t.TempDir(), "none.yaml"), "-s", g.url).want(t, 2, "none.yaml")
	leaf(t, "tag", "apply", "-s", g.url).want(t, 2, "-f is missing")
	if after := leafOK(t, "tag", "list", "--json", "-s", g.url); after != before {
		t.Errorf("a bad file made %s of %s", after, before)
	}
}

// A thousand tags go to another installation and back by the standard input.
func TestTagExport(t *testing.T) {
	t.Parallel()
	a, b := embed(t), embed(t)
	pipe := func(text string, args ...string) string {
		t.Helper()
		cmd := command(t, t.TempDir(), nil, args)
		cmd.Stdin = strings.NewReader(text)
		r := runLeaf(t, cmd)
		r.want(t, 0)
		return r.stdout
	}
	var text strings.Builder
	text.WriteString("tags:\n")
	for n := range 1000 {
		fmt.Fprintf(&text, "- {tag: shop.%04d, max_id: %d, step: 5, quota: {per_second: 7}}\n", n, n+1)
	}
	text.WriteString("- {tag: strict, order: strict}\n- {tag: voucher, opaque: d12}\n- {tag: web, opaque: 53}\n")
	if out := pipe(text.String(), "tag", "apply", "-f", "-", "-s", a.url); !strings.HasSuffix(out, "\n1003 tags: 1003 created, 0 changed, 0 unchanged, 0 failed\n") {
		t.Errorf("it ends with %q", out[max(0, len(out)-100):])
	}
	yaml := leafOK(t, "tag", "export", "-s", a.url)
	if want := "tags:\n  - tag: shop.0000\n    max_id: 1\n    step: 5\n    quota: {per_second: 7, burst: 7}\n  - tag: shop.0001\n"; !strings.HasPrefix(yaml, want) {
		t.Errorf("the export begins with %.200q", yaml)
	}
	pipe(yaml, "tag", "apply", "-f", "-", "-s", b.url)
	if copied := leafOK(t, "tag", "export", "-s", b.url); copied != yaml {
		t.Errorf("the copy differs: %.300s", copied)
	}
	for tag, kind := range map[string]string{"strict": `"order":"strict"`, "voucher": `"opaque":"d12"`, "web": `"opaque":"53"`} {
		if got := leafOK(t, "tag", "show", tag, "--json", "-s", b.url); !strings.Contains(got, kind) {
			t.Errorf("%s of the copy is %s", tag, got)
		}
	}
	cmd := command(t, t.TempDir(), nil, []string{"tag", "apply", "-f", "-", "-s", b.url})
	cmd.Stdin = strings.NewReader("tags:\n- {tag: voucher, opaque: 53}\n- {tag: shop.0000, opaque: 63}\n")
	runLeaf(t, cmd).want(t, 1, "voucher: its domain is d12, for life", "shop.0000: its domain is none, for life")
	json := leafOK(t, "tag", "export", "--json", "--prefix", "shop.00", "-s", b.url)
	if out := pipe(json, "tag", "apply", "-f", "-", "-s", a.url); out != "100 tags: 0 created, 0 changed, 100 unchanged, 0 failed\n" {
		t.Errorf("JSON that comes back: %q", out)
	}
}
