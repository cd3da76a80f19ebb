package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

func TestParseTagFile(t *testing.T) {
	specs, err := parseTagFile([]byte(`
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
`))
	if err != nil || len(specs) != 6 {
		t.Fatalf("%d tags, %v", len(specs), err)
	}
	if want := (tagSpec{TagUpdate: admin.TagUpdate{Tag: "order"}}); !reflect.DeepEqual(specs[0], want) {
		t.Errorf("only a name is %+v", specs[0])
	}
	if s := specs[1]; s.order != "strict" || *s.MaxID != 9007199254740993 || *s.Description != "" || *s.Paused || s.Step != nil || s.Limit != nil {
		t.Errorf("as JSON %+v", s)
	}
	quota := allocator.Quota{PerSecond: 1000, Burst: 5000}
	if s := specs[2]; *s.MaxID != 5 || *s.Step != 20 || *s.Description != "5" || *s.Quota != quota ||
		time.Duration(*s.Outlast) != time.Hour || *s.Limit != 2147483647 {
		t.Errorf("all fields are %+v", s)
	}
	if s := specs[3]; *s.Quota != quota {
		t.Errorf("an alias is %+v", s)
	}
	for _, s := range specs[4:] {
		if *s.Quota != (allocator.Quota{}) || *s.Outlast != 0 || *s.Limit != 0 {
			t.Errorf("rules to remove are %+v", s)
		}
	}
}

// What is wrong is named with its line.
func TestParseTagFileRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       `it is empty: want a key "tags"`,
		"tags: [":                                "line 1: ",
		"- tag: a":                               `line 1: want lines of the form "field: value"`,
		"tags: []\ntags: []":                     "line 2: tags: it is given twice",
		"tags: []\n---\ntags: 1":                 "it has a second document",
		"tags:\n- tag: a b":                      "line 2: ",
		"tags:\n- tag: [a]":                      "line 2: tag: want a single value",
		"tags:\n- tag: a\n  stp: 5":              "line 3: stp: a tag has no such field",
		"tags:\n- tag: a\n  tag: b":              "line 3: tag: it is given twice",
		"tags:\n- tag: a\n- tag: b\n- tag: a":    "line 4: the tag a is in line 2 already",
		"tags:\n- tag: a\n  order: up":           "line 2: ",
		"tags:\n- tag: a\n  step: 0":             "line 3: step: want a whole number from 1",
		"tags:\n- tag: a\n  step: 2000000000000": "line 2: ",
		"tags:\n- tag: a\n  max_id: 9223372036854775808":              "line 3: max_id: want a whole number from 1",
		"tags:\n- tag: a\n  limit: -1":                                "line 3: limit: want a whole number from 0",
		"tags:\n- tag: a\n  paused: yes":                              "line 3: paused: want true or false",
		"tags:\n- tag: a\n  outlast: 5":                               "line 3: outlast: want a time such as 15m",
		"tags:\n- tag: a\n  quota: 5":                                 `line 3: want lines of the form "field: value"`,
		"tags:\n- tag: a\n  quota:\n    per_second: x":                "line 4: per_second: want a whole number",
		"tags:\n- tag: a\n  quota: {burst: 5}":                        "line 2: ",
		"tags:\n- tag: a\n  order: strict\n  step: 5":                 "line 2: ",
		"tags:\n- tag: a\n  description: " + strings.Repeat("x", 257): "line 2: ",
	} {
		if _, err := parseTagFile([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
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
		{Tag: "1e3", Order: bus.OrderStrict, MaxID: 1<<63 - 1, Description: "yes: #\n\x1b", TagRules: admin.TagRules{Paused: true, Limit: 7}},
		{Tag: "true", MaxID: 3, Step: 9, TagRules: admin.TagRules{
			Quota: allocator.Quota{PerSecond: 5, Burst: 6}, Outlast: allocator.Duration(90 * time.Minute)}},
	}
	text, err := yaml.Marshal(map[string]any{"tags": exported(tags)})
	if err != nil {
		t.Fatal(err)
	}
	specs, err := parseTagFile(text)
	if err != nil || len(specs) != len(tags) {
		t.Fatalf("%d tags, %v:\n%s", len(specs), err, text)
	}
	for i, s := range specs {
		if s.Tag != tags[i].Tag || s.order != tags[i].Order {
			t.Errorf("%+v is read as %+v", tags[i], s)
		}
		if u, changes := s.difference(tags[i]); len(changes) > 0 {
			t.Errorf("%s: %v, %+v", s.Tag, changes, u)
		}
		// All of it is written: an empty tag lacks exactly that.
		if _, changes := s.difference(admin.TagRecord{}); len(changes) != []int{2, 4, 4}[i] {
			t.Errorf("%s: %v", s.Tag, changes)
		}
	}
}

// Whatever is read can be sent: a generator takes names and values.
func FuzzParseTagFile(f *testing.F) {
	for _, text := range []string{
		"tags:\n- tag: a\n  max_id: '5'\n  quota: {per_second: 5}\n", `{"tags":[{"tag":"a","order":"strict","limit":"7"}]}`,
		"tags: &a [{tag: a, quota: *a}]", "tags:\n- tag: a\n  <<: {step: 5}", "tags: [{tag: a, outlast: none, paused: true}]",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		specs, err := parseTagFile(text)
		if err != nil {
			return
		}
		names := make(map[string]bool)
		for _, s := range specs {
			if allocator.CheckTag(s.Tag) != nil || names[s.Tag] {
				t.Fatalf("%q has the tag %q", text, s.Tag)
			}
			names[s.Tag] = true
			if s.MaxID != nil && *s.MaxID < 1 || s.Step != nil && *s.Step < 1 {
				t.Fatalf("%q is read as %+v", text, s)
			}
		}
	})
}
