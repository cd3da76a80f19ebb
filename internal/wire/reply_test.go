package wire

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"github.com/leafbus/leafbus/bus/idspace"
)

func run(first, last int64) idspace.Range { return idspace.Range{First: first, Last: last} }

func TestParseReplyRefuses(t *testing.T) {
	for _, body := range []string{
		"", "0", "-1", "1-", "-", "1-1", "2-1", "1-0", "01", "1-02", " 1", "1\n", "\n1", "1,2", "1-2-3", "+1", "1.0",
		"9223372036854775808", "1-9223372036854775808", `{"stream":"ORDERS","seq":1}`, "one", "1\x00",
	} {
		if ranges, err := ParseReply([]byte(body)); err == nil {
			t.Errorf("ParseReply(%q) = %v", body, ranges)
		}
	}
}

// What is written is read back, and what is read is what would be written.
func FuzzParseReply(f *testing.F) {
	for _, body := range []string{"1", "1-2", "5-6\n9", "9223372036854775807", "1-1", "1\n", "01"} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		ranges, err := ParseReply(body)
		if err != nil {
			return
		}
		if again := AppendReply(nil, ranges, false); string(again) != string(body) {
			t.Fatalf("%q reads as %v, which is written %q", body, ranges, again)
		}
		var decoded struct {
			Count  int64
			Ranges []struct{ First, Last string }
		}
		if err := json.Unmarshal(AppendReply(nil, ranges, true), &decoded); err != nil {
			t.Fatal(err)
		}
		var back []idspace.Range
		for _, r := range decoded.Ranges {
			first, err1 := strconv.ParseInt(r.First, 10, 64)
			last, err2 := strconv.ParseInt(r.Last, 10, 64)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			back = append(back, run(first, last))
		}
		if !slices.Equal(back, ranges) || decoded.Count != idspace.Total(ranges) {
			t.Fatalf("%v in JSON reads as %v, count %d", ranges, back, decoded.Count)
		}
	})
}
