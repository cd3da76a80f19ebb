package idspace_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus/idspace"
)

func TestCheckTag(t *testing.T) {
	long := strings.Repeat("x", 128)
	for _, tag := range []string{
		"a", "Z", "0", "_", "=", "/", "-", "order", "ORDER", "order.eu", "a.b.c.d", "a/b=c_d-e", "/etc/passwd", "--", "1.2",
		long, long[:126] + ".x",
	} {
		if err := idspace.CheckTag(tag); err != nil {
			t.Errorf("CheckTag(%q): %v", tag, err)
		}
	}
	for _, tag := range []string{
		"", " ", ".", "..", ".a", "a.", "a..b", "a b", " a", "a ", "a\x00", "\x00", "a\n", "a\r\n", "\t", "*", ">", "a.*", "a.>", "a*",
		"täg", "标签", "\xff", "a\x80", "a,b", "a:b", "a;b", "a'b", `a"b`, "a\\b", "a$b", "a%b", "a?b", "a#b", "a@b", "a+b", "a~b", "{a}", "<a",
		"\u2028", "a\u200b", long + "x", long[:127] + ".", long + strings.Repeat("y", 1<<20), strings.Repeat("ä", 65),
	} {
		err := idspace.CheckTag(tag)
		if !errors.Is(err, idspace.ErrBadTag) {
			t.Errorf("CheckTag(%.140q): %v, want ErrBadTag", tag, err)
			continue
		}
		// The message is for a header of one line.
		if text := err.Error(); len(text) > 300 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("CheckTag(%.140q): message %q", tag, text)
		}
	}
}

func FuzzCheckTag(f *testing.F) {
	for _, s := range []string{"", "a", "a.b", ".a", "a.", "a..b", "*", "a.>", "a\x00", "ä", strings.Repeat("x", 128), strings.Repeat("x", 129)} {
		f.Add(s)
	}
	legal := regexp.MustCompile(`\A[A-Za-z0-9_=/-]+(\.[A-Za-z0-9_=/-]+)*\z`)
	f.Fuzz(func(t *testing.T, tag string) {
		err := idspace.CheckTag(tag)
		if want := legal.MatchString(tag) && len(tag) <= 128; want != (err == nil) {
			t.Errorf("CheckTag(%q): %v, want legal %v", tag, err, want)
		}
		if err != nil && !errors.Is(err, idspace.ErrBadTag) {
			t.Errorf("CheckTag(%q): %v, want ErrBadTag", tag, err)
		}
	})
}
