package generator

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/wire"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	step, id, text := int64(5), bus.ID(math.MaxInt64), ""
	for body, want := range map[string]admin.TagSpec{
		"":                                 {},
		" {} \n":                           {},
		`{"tag":"a","step":5}`:             {Tag: "a", Step: &step},
		`{"max_id":"9223372036854775807"}`: {MaxID: &id},
		`{"max_id":9223372036854775807}`:   {MaxID: &id},
		`{"description":"","step":null}`:   {Description: &text},
	} {
		got, err := decode[admin.TagSpec]([]byte(body))
		if err != nil || string(wire.Encode(got)) != string(wire.Encode(want)) {
			t.Errorf("decode(%s) = %s, %v; want %s", body, wire.Encode(got), err, wire.Encode(want))
		}
	}
	for _, body := range []string{
		"null", "[]", "7", `"a"`, "{", "{}{}", "{} x", `{"name":"a"}`, `{"tag":7}`, `{"step":"5"}`, `{"step":1.5}`,
		`{"max_id":"0"}`, `{"max_id":"-1"}`, `{"max_id":"1.5"}`, `{"max_id":1e3}`, `{"max_id":""}`, `{"max_id":"01"}`,
		`{"max_id":"9223372036854775808"}`, `{"max_id":9223372036854775808}`, `{"max_id":{}}`, `{"max_id":"\u0031"}`,
		`{"Tag":"a"}`, `{"tag":"a","force ":true}`, `{"tag":"a","\u017ftep":5}`, `{"outlast":900}`, `{"quota":5}`,
	} {
		got, err := decode[admin.TagSpec]([]byte(body))
		if !errors.Is(err, bus.BadRequest) || strings.Contains(err.Error(), "json") || strings.Contains(err.Error(), "Go") {
			t.Errorf("decode(%s) = %s, %v; want %v", body, wire.Encode(got), err, bus.BadRequest)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, body := range []string{"", "{}", `{"tag":"a","max_id":"5","step":1}`, `{"max_id":5}`, "{}{}", "null"} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := decode[admin.TagSpec](body)
		if err != nil {
			if e := toError(err); e.Code != 400 || strings.Contains(e.Message, "\n") {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		if req.MaxID != nil && *req.MaxID < 1 {
			t.Fatalf("%q: max_id %d", body, *req.MaxID)
		}
		again, err := decode[admin.TagSpec](wire.Encode(req))
		if err != nil || string(wire.Encode(again)) != string(wire.Encode(req)) {
			t.Fatalf("%s reads as %s, %v", wire.Encode(req), wire.Encode(again), err)
		}
	})
}
