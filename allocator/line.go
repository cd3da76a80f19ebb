package allocator

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
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
// old one in one step. After an error the old one is still there.
func writeLines(path string, numbers map[string]int64) error {
	temp, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(temp)
	for tag, number := range numbers {
		w.Write(appendLine(nil, tag, number)) // the error stays with w until Flush
	}
	err = errors.Join(w.Flush(), temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		os.Remove(temp.Name())
	}
	return err
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
