package main

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
)

func TestParseTagFile(t *testing.T) {
	specs, err := readTagFile(strings.NewReader(`
tags:
  - tag: order
  - {"tag": "invoice", "order": "strict", "max_id": "9007199254740993", "description": "", "paused": false, "updated": "2026-01-01T00:00:00Z"}
  - tag: coupon
    max_id: 5
    step: 20
    description: "5"
    quota: &q {per_second: 1000, burst: 5000}
    outlast: 1h
    limit: "2147483647"
  - {tag: a/b=c-d, quota: *q}
  - {tag: x, quota: none, outlast: none, limit: none}
  - {tag: y, quota: {per_second: 0}, outlast: 0, limit: 0}
  - {tag: z, quota: 0, outlast: 0s, limit: "none"}
  - {tag: text, quota: 1000/s, paused: yes}
`))
	if err != nil || len(specs) != 8 {
		t.Fatalf("%d tags, %v", len(specs), err)
	}
	if want := (admin.TagSpec{Tag: "order"}); !reflect.DeepEqual(specs[0], want) {
		t.Errorf("only a name is %+v", specs[0])
	}
	if s := specs[1]; s.Order != "strict" || *s.MaxID != 9007199254740993 || *s.Description != "" || *s.Paused || s.Step != nil || s.Limit != nil {
		t.Errorf("as JSON %+v", s)
	}
	quota := idspace.Quota{PerSecond: 1000, Burst: 5000}
	if s := specs[2]; *s.MaxID != 5 || *s.Step != 20 || *s.Description != "5" || *s.Quota != quota ||
		time.Duration(*s.Outlast) != time.Hour || *s.Limit != 2147483647 {
		t.Errorf("all fields are %+v", s)
	}
	if s := specs[3]; *s.Quota != quota {
		t.Errorf("an alias is %+v", s)
	}
	if s := specs[7]; s.Quota.PerSecond != 1000 || !*s.Paused {
		t.Errorf("text is %+v", s)
	}
	for _, s := range specs[4:7] {
		if *s.Quota != (idspace.Quota{}) || *s.Outlast != 0 || *s.Limit != 0 {
			t.Errorf("rules to remove are %+v", s)
		}
	}
}

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

// What is exported is what is read.
func TestExportIsRead(t *testing.T) {
	tags := []admin.TagRecord{
		{Tag: "a", MaxID: 1, Step: 5},
		{Tag: "1e3", Order: idspace.OrderStrict, MaxID: 1<<63 - 1, Description: "yes: #\n\x1b", TagRules: admin.TagRules{Paused: true, Limit: 7}},
		{Tag: "true", MaxID: 3, Step: 9, TagRules: admin.TagRules{
			Quota: idspace.Quota{PerSecond: 5, Burst: 6}, Outlast: idspace.Duration(90 * time.Minute)}},
	}
	var text bytes.Buffer
	if err := writeTagFile(&text, tags); err != nil {
		t.Fatal(err)
	}
	specs, err := readTagFile(&text)
	if err != nil || len(specs) != len(tags) {
		t.Fatalf("%d tags, %v", len(specs), err)
	}
	for i, s := range specs {
		if s.Tag != tags[i].Tag || s.Order != tags[i].Order {
			t.Errorf("%+v is read as %+v", tags[i], s)
		}
		// All of it is written: an empty tag lacks exactly that.
		whole := s
		if changes, err := merge(&whole, admin.TagRecord{Order: s.Order}); err != nil || len(changes) != []int{2, 4, 4}[i] {
			t.Errorf("%s: %v, %v", s.Tag, changes, err)
		}
		if changes, err := merge(&s, tags[i]); err != nil || len(changes) > 0 {
			t.Errorf("%s: %v, %v", s.Tag, changes, err)
		}
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
