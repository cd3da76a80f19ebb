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

// All are tried before the client is told to pause.
func TestHosts(t *testing.T) {
	var h hosts
	names := []string{"a", "b", "c"}
	if err := h.Init(names); err != nil {
		t.Fatal(err)
	}
	var tried []string
	next := func(want bool) {
		t.Helper()
		name, pause := h.Next()
		if pause != want {
			t.Errorf("after %v: pause %v before %s", tried, pause, name)
		}
		tried = append(tried, name)
	}
	for range names {
		next(false)
	}
	slices.Sort(tried)
	if !slices.Equal(tried, names) {
		t.Errorf("tried %v", tried)
	}
	next(true)
	h.Connected()
	next(false)
}

// A link's next client begins where the one before left off, not by chance at the
// server that hung.
func TestHostsOfTheNextClient(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	for range 10 { // chance would not do so each time
		var h hosts
		var tried []string
		for range names {
			if err := h.Init(names); err != nil { // as each client does
				t.Fatal(err)
			}
			name, _ := h.Next()
			tried = append(tried, name)
		}
		slices.Sort(tried)
		if !slices.Equal(tried, names) {
			t.Errorf("%d clients tried %v", len(names), tried)
		}
	}
}
