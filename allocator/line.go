package allocator

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"

	"github.com/leafbus/leafbus/allocator/disk"
)

// The files of this package have a line for each tag, "crc32 tag number".

// readLines returns the highest number of each tag in the file at path. Lines
// that fail their checksum are passed over; a file that is not there has none.
func readLines(path string) (map[string]int64, error) {
	numbers := make(map[string]int64)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return numbers, err
	}
	for line := range bytes.Lines(data) {
		if tag, number, ok := parseLine(line); ok {
			numbers[tag] = max(numbers[tag], number)
		}
	}
	return numbers, nil
}

// writeLines puts one line a tag into a new file that takes the place of the
// old one; see [disk.Replace].
func writeLines(path string, numbers map[string]int64) error {
	return disk.Replace(path, 0o640, func(w io.Writer) error {
		var line []byte
		for tag, number := range numbers {
			line = appendLine(line[:0], tag, number)
			if _, err := w.Write(line); err != nil {
				return err
			}
		}
		return nil
	})
}

func appendLine(b []byte, tag string, number int64) []byte {
	text := strconv.AppendInt(append([]byte(tag), ' '), number, 10)
	return fmt.Appendf(b, "%08x %s\n", crc32.ChecksumIEEE(text), text)
}

// parseLine reads a line of [appendLine] with a legal tag and a number above
// zero; ok is false for any other.
func parseLine(line []byte) (tag string, number int64, ok bool) {
	sum, text, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	if !ok || len(text)+len(sum)+2 != len(line) {
		return "", 0, false
	}
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || uint32(want) != crc32.ChecksumIEEE(text) {
		return "", 0, false
	}
	name, digits, ok := bytes.Cut(text, []byte(" "))
	number, err = strconv.ParseInt(string(digits), 10, 64)
	return string(name), number, ok && err == nil && number > 0 && CheckTag(string(name)) == nil
}
