package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

// mostTagFile is the largest file of tags, in bytes: enough for some 100,000 tags.
const mostTagFile = 16 << 20

// tagSpec is a tag as a file wants it. What the file leaves out is nil, or empty, and stays as it is.
type tagSpec struct {
	admin.TagUpdate
	order  string
	opaque string
}

// readTagFile reads a file of tags. An error names the line.
func readTagFile(r io.Reader) ([]tagSpec, error) {
	text, err := io.ReadAll(io.LimitReader(r, mostTagFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > mostTagFile {
		return nil, fmt.Errorf("it has more than %d MiB: split it", mostTagFile>>20)
	}
	return parseTagFile(text)
}

// parseTagFile reads the text of a file of tags: YAML, of which JSON is a part.
func parseTagFile(text []byte) (specs []tagSpec, err error) {
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, errors.New(`it is empty: want a key "tags", with a list below it`)
	} else if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New(`it has a second document: put all tags below one key "tags"`)
	}
	lines := make(map[string]int) // of each tag
	err = eachSetting(doc.Content[0], func(key string, list *yaml.Node) error {
		if key != "tags" || list.Kind != yaml.SequenceNode {
			return errors.New(`want one key "tags", with a list below it`)
		}
		for _, n := range list.Content {
			s, err := parseTagSpec(n)
			if err != nil {
				return err
			}
			if line, twice := lines[s.Tag]; twice {
				return atLine(n.Line, fmt.Errorf("the tag %s is in line %d already", s.Tag, line))
			}
			lines[s.Tag] = n.Line
			specs = append(specs, s)
		}
		return nil
	})
	return specs, err
}

// parseTagSpec reads one tag, and refuses what no generator can take.
func parseTagSpec(n *yaml.Node) (s tagSpec, err error) {
	if err := eachSetting(n, s.set); err != nil {
		return s, err
	}
	step := int64(1) // of a tag whose step the file leaves out
	if s.Step != nil {
		step = *s.Step
	}
	order, err := s.kind()
	if order == allocator.Strict && s.Step == nil {
		step = 0
	}
	err = cmp.Or(allocator.CheckTag(s.Tag), err, allocator.CheckStepOf(order, step, allocator.LimitStep))
	if err == nil {
		_, err = allocator.NewRules(s.RulesChange, order)
	}
	if err == nil && s.Description != nil {
		err = allocator.CheckDescription(*s.Description)
	}
	return s, atLine(n.Line, err)
}

// kind returns the order of the tag, which has the domain of an opaque one.
func (s *tagSpec) kind() (allocator.Order, error) {
	order, err := allocator.ParseOrder(s.order)
	if err != nil || s.opaque == "" {
		return order, err
	}
	if order == allocator.Strict {
		return order, errors.New("a tag is strict or opaque, not both")
	}
	domain, err := opaque.ParseDomain(s.opaque)
	return allocator.OpaqueOrder(domain), err
}

// set sets a field to a value of the file.
func (s *tagSpec) set(key string, v *yaml.Node) (err error) {
	switch key {
	case "tag":
		s.Tag, err = scalar(v)
	case "order":
		s.order, err = scalar(v)
	case "opaque":
		s.opaque, err = scalar(v)
	case "max_id":
		s.MaxID = new(bus.ID)
		*s.MaxID, err = number[bus.ID](v, 1)
	case "step":
		s.Step = new(int64)
		*s.Step, err = number[int64](v, 1)
	case "description":
		s.Description = new(string)
		*s.Description, err = scalar(v)
	case "quota":
		s.Quota = new(allocator.Quota)
		if text, _ := scalar(v); text != "none" {
			err = eachSetting(v, func(key string, v *yaml.Node) error { return setQuota(s.Quota, key, v) })
		}
	case "paused":
		s.Paused = new(bool)
		text, _ := scalar(v)
		if *s.Paused = text == "true"; text != "true" && text != "false" {
			err = errors.New("want true or false")
		}
	case "outlast":
		s.Outlast = new(allocator.Duration)
		if text, _ := scalar(v); text != "none" && text != "0" {
			d, bad := time.ParseDuration(text)
			if *s.Outlast = allocator.Duration(d); bad != nil || d < 0 {
				err = errors.New("want a time such as 15m, or none")
			}
		}
	case "limit":
		s.Limit = new(allocator.Limit)
		*s.Limit, err = number[allocator.Limit](v, 0)
	case "updated": // so that a record can be sent as it was received
	default:
		err = errors.New("a tag has no such field: `leaf help tag apply` lists them")
	}
	return err
}

func setQuota(q *allocator.Quota, key string, v *yaml.Node) (err error) {
	switch key {
	case "per_second":
		q.PerSecond, err = number[int64](v, 0)
	case "burst":
		q.Burst, err = number[int64](v, 1)
	default:
		err = errors.New("a quota has no such field: want per_second and burst")
	}
	return err
}

// number reads a whole number, from least on. As text, too, because IDs are text in JSON. If least is 0, so is "none".
func number[T ~int64](v *yaml.Node, least int64) (T, error) {
	text, err := scalar(v)
	n, bad := strconv.ParseInt(text, 10, 64)
	switch {
	case err == nil && text == "none" && least == 0:
		return 0, nil
	case err != nil || bad != nil || n < least:
		return 0, fmt.Errorf("want a whole number from %d to %d", least, int64(math.MaxInt64))
	}
	return T(n), nil
}

// scalar reads text.
func scalar(v *yaml.Node) (string, error) {
	if v.Kind != yaml.ScalarNode || v.ShortTag() == "!!null" {
		return "", errors.New("want a single value after the colon")
	}
	return v.Value, nil
}

// eachSetting calls set for each field of a mapping. An error names the field and its line.
func eachSetting(n *yaml.Node, set func(key string, v *yaml.Node) error) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		return atLine(n.Line, errors.New(`want lines of the form "field: value"`))
	}
	seen := make(map[string]bool)
	for i := 0; i < len(n.Content); i += 2 {
		key, v := n.Content[i], n.Content[i+1]
		if v.Kind == yaml.AliasNode {
			v = v.Alias
		}
		err := errors.New("it is given twice")
		if !seen[key.Value] {
			err = set(key.Value, v)
		}
		if _, has := errors.AsType[*lineError](err); has {
			return err
		}
		if err != nil {
			return &lineError{key.Line, fmt.Errorf("%s: %w", key.Value, err)}
		}
		seen[key.Value] = true
	}
	return nil
}

// lineError is an error at a line of a file.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }

// atLine returns err with its line, unless it has one.
func atLine(line int, err error) error {
	if _, has := errors.AsType[*lineError](err); has || err == nil {
		return err
	}
	return &lineError{line, err}
}
