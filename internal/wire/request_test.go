package wire

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestParseRequest(t *testing.T) {
	for body, want := range map[string]Request{
		"":                              {1, false},
		"  \r\n\t":                      {1, false},
		"1":                             {1, false},
		" 100\n":                        {100, false},
		"1000000":                       {1000000, false},
		"99999999999999999999":          {math.MaxInt64, false}, // refused later, as too large
		"{}":                            {1, true},
		` { "count" : 100 } `:           {100, true},
		`{"count":9223372036854775808}`: {math.MaxInt64, true},
	} {
		got, err := ParseRequest([]byte(body))
		if err != nil || got != want {
			t.Errorf("ParseRequest(%q) = %+v, %v; want %+v", body, got, err, want)
		}
	}
}

func TestParseRequestRefuses(t *testing.T) {
	for _, body := range []string{
		"0", "00", "007", "-1", "+1", "1.5", "1e9", "1 2", "ten", "0x10", "1_000", "１", "\x00", "1\x00",
		"null", "[]", "[1]", `"1"`, "true", "{", `{"count"}`, "{}{}", "{} 1",
		`{"count":0}`, `{"count":-1}`, `{"count":1.5}`, `{"count":1e3}`, `{"count":"100"}`, `{"count":null}`,
		`{"Count":1}`, `{"n":1}`, `{"count":1,"tag":"x"}`, `{"count":[1]}`,
		strings.Repeat("1", maxRequest+1), strings.Repeat(" ", maxRequest+1),
	} {
		got, err := ParseRequest([]byte(body))
		if err == nil || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("ParseRequest(%.40q) = %+v, %q; want an error of one line", body, got, err)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	for _, body := range []string{"", "1", " 42 ", `{"count":7}`, "{}", "0", `{"count":1e3}`, "{}{}"} {
		f.Add([]byte(body))
	}
	text := regexp.MustCompile(`^[1-9][0-9]*$`)
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := ParseRequest(body)
		if err != nil {
			if req != (Request{}) {
				t.Fatalf("%q: %+v, %v", body, req, err)
			}
			return
		}
		if req.Count < 1 {
			t.Fatalf("%q asks for %d", body, req.Count)
		}
		trimmed := strings.TrimSpace(string(body))
		switch {
		case trimmed == "":
			if req != (Request{1, false}) {
				t.Fatalf("%q: %+v", body, req)
			}
		case !req.JSON:
			n, err := strconv.ParseInt(trimmed, 10, 64)
			if !text.MatchString(trimmed) || n != req.Count || (err != nil) != (req.Count == math.MaxInt64 && trimmed != "9223372036854775807") {
				t.Fatalf("%q: %+v", body, req)
			}
		case trimmed[0] != '{':
			t.Fatalf("%q is taken for JSON", body)
		}
	})
}
