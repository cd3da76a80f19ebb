package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
)

// mostTagFile is the largest file of tags, in bytes: enough for some 100,000 tags.
const mostTagFile = 16 << 20

// tagFile is a file of tags.
type tagFile struct {
	Tags []admin.TagSpec `yaml:"tags"`
}

func writeTagFile(w io.Writer, tags []admin.TagRecord) error {
	file := tagFile{[]admin.TagSpec{}}
	for _, t := range tags {
		file.Tags = append(file.Tags, t.Spec())
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	return errors.Join(enc.Encode(file), enc.Close())
}

// readTagFile reads a file of tags: YAML, of which JSON is a part. An error names the line or the
// tag.
func readTagFile(r io.Reader) ([]admin.TagSpec, error) {
	text, err := io.ReadAll(io.LimitReader(r, mostTagFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > mostTagFile {
		return nil, fmt.Errorf("it has more than %d MiB: split it", mostTagFile>>20)
	}
	var file struct{ Tags []yaml.Node }
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf(`want one key "tags", with a list below it: %w`, err)
	}
	if dec.Decode(new(yaml.Node)) != io.EOF {
		return nil, errors.New(`want one document: put all tags below one key "tags"`)
	}
	specs, seen := make([]admin.TagSpec, len(file.Tags)), make(map[string]bool)
	for i, node := range file.Tags {
		spec, err := parseTagSpec(&node)
		if err == nil && seen[spec.Tag] {
			err = fmt.Errorf("the tag %s comes twice", spec.Tag)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", node.Line, err)
		}
		specs[i], seen[spec.Tag] = spec, true
	}
	return specs, nil
}

// parseTagSpec reads one tag, and refuses what no generator can take.
func parseTagSpec(n *yaml.Node) (admin.TagSpec, error) {
	var entry struct {
		admin.TagSpec `yaml:",inline"`
		Others        map[string]any `yaml:",inline"`
	}
	if err := n.Decode(&entry); err != nil {
		return entry.TagSpec, err
	}
	for field := range entry.Others {
		return entry.TagSpec, fmt.Errorf("%s: a tag has no such field", field)
	}
	s := entry.TagSpec
	order, err := allocator.NewOrder(s.Order, s.Opaque)
	err = cmp.Or(idspace.CheckTag(s.Tag), err)
	if err == nil && s.Step != nil {
		err = allocator.CheckStepOf(order, *s.Step, allocator.LimitStep)
	}
	if err == nil && s.Description != nil {
		err = allocator.CheckDescription(*s.Description)
	}
	if err == nil {
		_, err = allocator.NewRules(s.RulesChange, order)
	}
	return s, err
}
