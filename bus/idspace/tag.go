package idspace

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxTagLen is the longest tag, in bytes.
const MaxTagLen = 128

// The orders of a tag. An order is chosen when the tag is created, and never changes.
const (
	// OrderTrend is the default: the IDs of each generator increase.
	OrderTrend = "trend"
	// OrderStrict: if a request is sent after the answer to another one has arrived, all its IDs
	// are above all IDs of that answer. A batch is one run of consecutive IDs. There may be gaps.
	OrderStrict = "strict"
)

// ErrBadTag is matched by the errors of [CheckTag].
var ErrBadTag = errors.New("illegal tag")

// CheckTag reports whether tag is a legal name: 1 to 128 characters of
// [A-Za-z0-9_=/.-] in which dots separate non-empty tokens. NATS subjects, KV keys
// and a VARCHAR(128) can all hold it. The error matches [ErrBadTag].
func CheckTag(tag string) error {
	if tag == "" {
		return fmt.Errorf("%w: it is empty", ErrBadTag)
	}
	if len(tag) > MaxTagLen {
		return fmt.Errorf("%w: it has %d characters, the limit is %d", ErrBadTag, len(tag), MaxTagLen)
	}
	token := 0 // length of the token so far
	for i := range len(tag) {
		switch c := tag[i]; {
		case c == '*' || c == '>':
			return fmt.Errorf("%w: %s is a wildcard; ask for one tag", ErrBadTag, Quote(tag))
		case c == '.' && token == 0, c == '.' && i == len(tag)-1:
			return fmt.Errorf("%w: %s has an empty token beside a dot", ErrBadTag, Quote(tag))
		case c == '.':
			token = 0
		case !tagChar(c):
			return fmt.Errorf("%w: %s has a character other than A-Z a-z 0-9 _ = / . -", ErrBadTag, Quote(tag))
		default:
			token++
		}
	}
	return nil
}

func tagChar(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '_' || c == '=' || c == '/' || c == '-'
}

// Quote makes what a caller sent fit for a message: one line of ASCII, not long.
func Quote[T ~string | ~[]byte](text T) string {
	const most = 40
	s := string(text[:min(len(text), most+1)])
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return strconv.QuoteToASCII(s)
}
