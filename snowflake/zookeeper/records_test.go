package zookeeper

import (
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/snowflake"
)

var stat = &zk.Stat{Mzxid: 9, Czxid: 5, Version: 3}

func TestDecode(t *testing.T) {
	text := `{"ip":"10.0.0.5","port":"4222","timestamp":7,"node":"a","incarnation":"x","reserved_until":8,"acquired":6,"base":512}`
	got, err := decode("b-0000000010", []byte(text), stat)
	want := node{
		Entry: snowflake.Entry{
			Record:  snowflake.Record{Worker: 522, Node: "a", Incarnation: "x", ReservedUntil: 8, Acquired: 6, Reported: 7},
			Version: 9,
		},
		name: "b-0000000010", base: 512, version: 3, created: 5,
	}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if got, err := decode("b-0000000010", []byte(strings.Replace(text, "512", "-10", 1)), stat); err != nil || got.Worker != 0 {
		t.Errorf("base -10: %+v, %v", got, err)
	}
}

// Whatever the generator's name is, the sequence number is found behind it.
func TestNumber(t *testing.T) {
	for _, generator := range []string{"a", "leaf-0", "db1.example.com", "a-", "--", "a-0000000007"} {
		if n, ok := number(prefix(generator) + "0000000010"); !ok || n != 10 {
			t.Errorf("%s: %d, %v", generator, n, ok)
		}
		if n, ok := number(prefix(generator) + "-2147483648"); ok {
			t.Errorf("%s: a negative number is read as %d", generator, n)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := `{"node":"a","incarnation":"x","reserved_until":8,"base":0}`
	for _, c := range []struct{ name, text string }{
		{"a-0000000001", ""}, {"a-0000000001", "null"}, {"a-0000000001", "{}"}, {"a-0000000001", "[1]"}, {"a-0000000001", good + "}"},
		{"a-0000000001", `{"node":"a","incarnation":"","reserved_until":8,"base":0}`},
		{"a-0000000001", `{"node":"a","incarnation":"x","reserved_until":0,"base":0}`},
		{"a-0000000001", `{"node":"a","incarnation":"x","reserved_until":-8,"base":0}`},
		{"a-0000000001", `{"node":"a","incarnation":"x","reserved_until":8,"base":-2}`},
		{"a-0000000001", `{"node":"a","incarnation":"x","reserved_until":8,"base":9223372036854775807}`},
		{"a-0000000001", `{"node":"a","incarnation":"x","reserved_until":8}`}, // its worker would be a guess
		{"a", good}, {"a-1", good}, {"0000000001", good}, {"a-00000000001", good}, {"a--2147483648", good}, {"a-000000000x", good},
	} {
		if got, err := decode(c.name, []byte(c.text), stat); err == nil {
			t.Errorf("%s %s: %+v", c.name, c.text, got)
		}
	}
}

// What is decoded can be written again, and is the same then.
func FuzzDecodeNode(f *testing.F) {
	f.Add("a-0000000007", []byte(`{"ip":"10.0.0.5","port":"4222","timestamp":7,"node":"a","incarnation":"x","reserved_until":8,"acquired":6,"base":512}`))
	f.Add("a-0000000000", []byte(`{}`))
	f.Add("a--000000001", []byte(`{"incarnation":"x","reserved_until":8,"base":-1}`))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		n, err := decode(name, text, stat)
		if err != nil {
			return
		}
		seq, _ := number(name)
		if n.Worker < 0 || n.Incarnation == "" || n.ReservedUntil <= 0 || n.Worker != n.base+seq {
			t.Errorf("%s %q: %+v", name, text, n)
		}
		again, err := (&Registry{link: &link{}}).encode(n.Record, n.base)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := decode(name, again, stat); err != nil || m != n {
			t.Errorf("%s %q: %+v, then %+v, %v", name, text, n, m, err)
		}
	})
}
