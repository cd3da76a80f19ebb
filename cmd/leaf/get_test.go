package main

import (
	"bufio"
	"errors"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
)

func TestWriteIDs(t *testing.T) {
	ranges := []bus.Range{{First: 1, Last: 3}, {First: 7, Last: 7}}
	for _, c := range []struct {
		name string
		w    idWriter
		want string
	}{
		{"lines", idWriter{}, "1\n2\n3\n7\n"},
		{"ranges", idWriter{ranges: true}, "1-3\n7\n"},
		{"JSON", idWriter{json: true, count: 4}, `{"count":4,"ranges":[{"first":"1","last":"3"},{"first":"7","last":"7"}]}` + "\n"},
	} {
		var out strings.Builder
		c.w.w = bufio.NewWriter(&out)
		if c.w.w.Flush(); out.Len() > 0 {
			t.Errorf("%s: %q before the first ID: a request that fails must write nothing", c.name, &out)
		}
		for _, r := range ranges {
			if err := c.w.write(r); err != nil {
				t.Fatal(err)
			}
		}
		c.w.finish()
		if err := c.w.w.Flush(); err != nil || out.String() != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, &out, err, c.want)
		}
	}
}

// A full disk is reported by the write that fails, not only at the end.
func TestWriteIDsFails(t *testing.T) {
	w := idWriter{w: bufio.NewWriter(full{})}
	if err := w.write(bus.Range{First: 1, Last: 1_000_000}); err == nil {
		t.Error("a failed write returned no error")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }
