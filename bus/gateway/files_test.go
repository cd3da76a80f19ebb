package gateway

import (
	"regexp"
	"strings"
	"testing"
)

func TestPages(t *testing.T) {
	t.Parallel()
	s := serve(t, &fakeGenerator{})
	index := get(s, "/")
	if index.Code != 200 || index.Header().Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(index.Body.String(), "<title>") {
		t.Fatalf("%d %v", index.Code, index.Header())
	}
	// All that the page and its scripts name is there; nothing is elsewhere.
	found := 0
	for _, file := range append([]string{"/"}, names(index.Body.String())...) {
		w := get(s, file)
		if w.Code != 200 || w.Body.Len() == 0 {
			t.Errorf("%s: %d", file, w.Code)
		}
		if other := regexp.MustCompile(`(src|href|url|from|import)\W{1,3}(https?:)?//`).FindString(w.Body.String()); other != "" {
			t.Errorf("%s loads %q from elsewhere", file, other)
		}
		for _, imported := range regexp.MustCompile(`from "\./([a-z]+\.js)"`).FindAllStringSubmatch(w.Body.String(), -1) {
			found++
			if w := get(s, "/dashboard/"+imported[1]); w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/javascript") {
				t.Errorf("%s imports %s: %d %v", file, imported[1], w.Code, w.Header())
			}
		}
	}
	if found == 0 {
		t.Error("no import was looked at")
	}
}

// names returns the files that a page names.
func names(page string) []string {
	var list []string
	for _, m := range regexp.MustCompile(`(?:src|href)="(dashboard/[^"]+)"`).FindAllStringSubmatch(page, -1) {
		list = append(list, "/"+m[1])
	}
	return list
}
