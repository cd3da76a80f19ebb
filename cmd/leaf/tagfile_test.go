package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus/idspace"
)

// What is wrong is named with its line.
func TestParseTagFileRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       `want one key "tags"`,
		"tags: [":                                `want one key "tags", with a list below it: yaml: `,
		"- tag: a":                               `want one key "tags", with a list below it: yaml: `,
		"tags: []\ntags: []":                     `want one key "tags", with a list below it: yaml: `,
		"tags: []\nstep: 5":                      `want one key "tags", with a list below it: yaml: `,
		"tags: []\n---\ntags: 1":                 "want one document",
		"tags:\n- tag: a b":                      "line 2: ",
		"tags:\n- tag: [a]":                      "line 2: ",
		"tags:\n- tag: a\n  stp: 5":              "line 2: stp: a tag has no such field",
		"tags:\n- tag: a\n  tag: b":              "line 2: ",
		"tags:\n- tag: a\n- tag: b\n- tag: a":    "line 4: the tag a comes twice",
		"tags:\n- tag: a\n  order: up":           "line 2: ",
		"tags:\n- tag: a\n  step: 0":             "line 2: ",
		"tags:\n- tag: a\n  step: x":             "line 2: ",
		"tags:\n- tag: a\n  step: 2000000000000": "line 2: ",
		"tags:\n- tag: a\n  max_id: 9223372036854775808":              `line 2: "9223372036854775808" is not an ID`,
		"tags:\n- tag: a\n  limit: -1":                                "line 2: ",
		"tags:\n- tag: a\n  paused: soon":                             "line 2: ",
		"tags:\n- tag: a\n  outlast: 5":                               "line 2: ",
		"tags:\n- tag: a\n  quota: -5":                                "line 2: ",
		"tags:\n- tag: a\n  quota:\n    per_second: x":                "line 2: ",
		"tags:\n- tag: a\n  quota: {per_secnd: 5}":                    "line 2: ",
		"tags:\n- tag: a\n  quota: {burst: 5}":                        "line 2: ",
		"tags:\n- tag: a\n  order: strict\n  step: 5":                 "line 2: ",
		"tags:\n- tag: a\n  description: " + strings.Repeat("x", 257): "line 2: ",
	} {
		if _, err := readTagFile(strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := readTagFile(strings.NewReader(strings.Repeat("#", mostTagFile+1))); err == nil || !strings.Contains(err.Error(), "split it") {
		t.Errorf("a file that is too large: %v", err)
	}
}

// Whatever is read can be sent: a generator takes names and values.
func FuzzParseTagFile(f *testing.F) {
	for _, text := range []string{
		"tags:\n- tag: a\n  max_id: '5'\n  quota: {per_second: 5}\n", `{"tags":[{"tag":"a","order":"strict","limit":"7"}]}`,
		"tags: &a [{tag: a, quota: *a}]", "tags:\n- tag: a\n  <<: {step: 5}", "tags: [{tag: a, outlast: none, paused: true}]", "tags: [{tag: a, quota: 5/s}, {tag: b, quota: {burst: 5}}]",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		specs, err := readTagFile(bytes.NewReader(text))
		if err != nil {
			return
		}
		names := make(map[string]bool)
		for _, s := range specs {
			if idspace.CheckTag(s.Tag) != nil || names[s.Tag] {
				t.Fatalf("%q has the tag %q", text, s.Tag)
			}
			names[s.Tag] = true
			if s.MaxID != nil && *s.MaxID < 1 || s.Step != nil && *s.Step < 0 {
				t.Fatalf("%q is read as %+v", text, s)
			}
		}
	})
}
