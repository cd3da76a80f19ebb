package zookeeper

import (
	"slices"
	"testing"
)

func TestParseHosts(t *testing.T) {
	for list, want := range map[string][]string{
		"h1":                     {"h1:2181"},
		"h1:2182,h2, h3:1 ":      {"h1:2182", "h2:2181", "h3:1"},
		"10.0.0.5,[::1]:9,[::1]": {"10.0.0.5:2181", "[::1]:9", "[::1]:2181"},
		"::1":                    {"[::1]:2181"},
	} {
		if got, err := parseHosts(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", list, got, err, want)
		}
	}
	for _, list := range []string{"", " ", ",", "h1,", "h1:0", "h1:65536", "h1:x", "h1:2181/chroot", "zk://h1", "a b:1", "h1:1:2", "u:p@h1:1", ":2181"} {
		if got, err := parseHosts(list); err == nil {
			t.Errorf("%q: %q", list, got)
		}
	}
}

// All are tried, also by one client after the other, before a client is told to pause.
func TestHosts(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	for range 10 { // chance would not do so each time
		var h hosts
		var tried []string
		for range names {
			if err := h.Init(names); err != nil { // as each client does
				t.Fatal(err)
			}
			name, pause := h.Next()
			tried = append(tried, name)
			if pause {
				t.Errorf("a pause before %v", tried)
			}
		}
		if _, pause := h.Next(); !pause {
			t.Errorf("no pause after %v", tried)
		}
		slices.Sort(tried)
		if !slices.Equal(tried, names) {
			t.Errorf("%d clients tried %v", len(names), tried)
		}
		h.Connected()
		if _, pause := h.Next(); pause {
			t.Error("a pause after a connection")
		}
	}
}
