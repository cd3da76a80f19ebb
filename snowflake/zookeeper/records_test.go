package zookeeper

import (
	"testing"

	"github.com/go-zookeeper/zk"
)

var stat = &zk.Stat{Mzxid: 9, Czxid: 5, Version: 3}

func TestDecodeRefuses(t *testing.T) {
	for _, text := range []string{
		"", "null", "{}", "[1]", `{"node":"a","incarnation":"x","reserved_until":8,"worker":0}}`,
		`{"node":"a","incarnation":"","reserved_until":8,"worker":0}`,
		`{"node":"a","incarnation":"x","reserved_until":0,"worker":0}`,
		`{"node":"a","incarnation":"x","reserved_until":-8,"worker":0}`,
		`{"node":"a","incarnation":"x","reserved_until":8,"worker":-1}`,
		`{"node":"a","incarnation":"x","reserved_until":8}`, // its worker would be a guess
	} {
		if got, err := decode("a-0000000001", []byte(text), stat); err == nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// What is decoded can be written again, and is the same then.
func FuzzDecodeNode(f *testing.F) {
	f.Add([]byte(`{"ip":"10.0.0.5","port":"4222","timestamp":7,"node":"a","incarnation":"x","reserved_until":8,"worker":5}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"incarnation":"x","reserved_until":8,"worker":-1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := decode("a-0000000007", text, stat)
		if err != nil {
			return
		}
		if n.Worker < 0 || n.Incarnation == "" || n.ReservedUntil <= 0 {
			t.Errorf("%q: %+v", text, n)
		}
		if m, err := decode("a-0000000007", encode(n.Record, "10.0.0.5", "4222"), stat); err != nil || m != n {
			t.Errorf("%q: %+v, then %+v, %v", text, n, m, err)
		}
	})
}
