package allocator

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/leafbus/leafbus/allocator/disk"
	"github.com/leafbus/leafbus/bus/idspace"
)

// markFile keeps the marks of an [Index]: a line each, "crc32 tag end". The line of an own claim is
// in the file before its range is served, so kill -9 loses nothing. A power failure may lose what
// the operating system had not yet written. A missing mark only makes the check of the store
// weaker.
//
// A disk that fails or hangs makes the check weaker too, but only after a restart: the mark stays
// in memory, and is written with the next one that the disk takes. A range waits for its line for
// at most markWait.
//
// The fields belong to the operation that the disk runs.
type markFile struct {
	path  string
	disk  *disk.Runner
	file  writeSyncer // nil: closed
	lines int         // in the file
}

// writeSyncer is the file as it is written. An [os.File] is one.
type writeSyncer interface {
	io.WriteCloser
	Sync() error
}

const (
	// slackLines is how many lines the file may have beyond two a tag before it is rewritten.
	slackLines = 4096
	// maxWrite bounds one write to the file, in bytes.
	maxWrite = 64 << 10
	// markWait is how long a refill waits for the file. A file that hangs for longer
	// delays no other refill until it is back.
	markWait = 250 * time.Millisecond
	// closeWait is how long Close waits for it. A busy disk needs seconds to sync, and a
	// stop has the time.
	closeWait = 5 * time.Second
)

// OpenIndex reads the marks from the file at path, or creates it, and keeps them there. Others'
// claims are there within seconds.
func OpenIndex(path string) (*Index, error) {
	ends, err := readLines(path)
	if err != nil {
		return nil, fmt.Errorf("reading the high-water marks: %w", err)
	}
	x := newIndex(ends)
	x.dirty, x.file = make(map[string]int64), &markFile{path: path, disk: disk.NewRunner(markWait)}
	if err := x.rewrite(); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the high-water marks: %w", err), x.file.close())
	}
	return x, nil
}

// Record raises the mark of tag to end, in memory and in the file. It returns within markWait.
// After an error the mark is in memory, and may be in the file. The next Record writes it again.
func (x *Index) Record(tag string, end int64) error {
	x.Observe(tag, end)
	return x.flush()
}

// flush writes all marks that the file lacks.
func (x *Index) flush() error {
	if x.file == nil {
		return nil
	}
	return x.file.disk.Run(x.write)
}

// write writes all marks that the file lacks. These may be several, or none, because another call
// may have written them.
func (x *Index) write() error {
	x.mu.Lock()
	marks, tags := x.dirty, len(x.of)
	x.dirty = make(map[string]int64)
	x.mu.Unlock()
	if x.file.file == nil || len(marks) == 0 {
		return nil
	}
	err := x.append(marks, tags)
	if err != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		for tag, end := range marks {
			x.dirtyLocked(tag, end)
		}
	}
	return err
}

// append adds the marks to the file, or rewrites the file if it has become long.
func (x *Index) append(marks map[string]int64, tags int) error {
	var failed error
	m := x.file
	if m.lines+len(marks) > 2*tags+slackLines {
		if failed = x.rewrite(); failed == nil {
			return nil
		}
		m.lines = 2 * tags // a rewrite is much work: not again for each of the next lines
	}
	w := bufio.NewWriterSize(m.file, maxWrite)
	w.WriteByte('\n') // ends a line that was torn by a failed write, so that it does not spoil the next
	for tag, end := range marks {
		w.Write(appendLine(nil, tag, end)) // Flush has its error
	}
	err := w.Flush()
	if err == nil {
		m.lines += len(marks)
	}
	return errors.Join(failed, err)
}

// Close writes what is not written, and syncs and closes the file. It returns
// within closeWait; a disk that hangs keeps the file open.
func (x *Index) Close() error {
	m := x.file
	if m == nil {
		return nil
	}
	err := m.disk.RunWithin(closeWait, func() error {
		err := x.write()
		if m.file != nil {
			err = errors.Join(err, m.file.Sync())
		}
		return errors.Join(err, m.close())
	})
	if err != nil {
		return fmt.Errorf("closing the high-water marks: %w", err)
	}
	return nil
}

func (m *markFile) close() error {
	f := m.file
	m.file = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// rewrite replaces the file by one with a line for each tag.
func (x *Index) rewrite() error {
	m, ends := x.file, x.Ends()
	failed := writeLines(m.path, ends)
	// Opened by its final name, because the next rewrite replaces the file of that name.
	// After an error the new file may have the name too.
	f, err := os.OpenFile(m.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return errors.Join(failed, err)
	}
	if m.file != nil {
		m.file.Close()
	}
	m.file = f
	if failed == nil {
		m.lines = len(ends)
	}
	return failed
}

// readLines returns the highest number of each tag in the file at path, which has lines
// "crc32 tag number". It skips lines that fail their checksum. A missing file has none.
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

// writeLines replaces the file at path by one line a tag; see [disk.Replace].
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
	return string(name), number, ok && err == nil && number > 0 && idspace.CheckTag(string(name)) == nil
}
