package allocator

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator/disk"
)

// Marks remembers, for every tag, the end of all ranges that were seen: those
// that this generator reserved and those that other generators reported. A store
// that offers a range below a mark went backwards.
//
// A file keeps the generator's own marks, also after their tag is
// deleted: a line each, "crc32 tag end". A line is in the file before its range
// is served, so kill -9 loses nothing. A power failure may lose what the operating
// system had not yet written. A missing mark only makes the check weaker.
//
// A disk that fails or hangs makes the check weaker too, but only after a
// restart: the mark stays in memory, and Marks writes it with the next one that the disk
// takes. A range waits for its line for at most markWait.
//
// No mark is ever dropped, even if its tag is idle for long: only the mark shows that a
// store went backwards, and it must be in memory when the disk fails.
//
// Its methods are safe for concurrent use.
type Marks struct {
	mu        sync.Mutex // never held across I/O
	ends      map[string]int64
	unwritten map[string]int64 // own marks that the file lacks

	// What follows belongs to the operation that the disk runs.
	path  string
	disk  *disk.Runner // nil: kept in memory only
	file  markFile     // nil: closed
	lines int          // in the file
	torn  bool         // its last line may be incomplete
}

// markFile is the file as it is written. An [os.File] is one.
type markFile interface {
	io.WriteCloser
	Sync() error
}

const (
	// slackLines is how many lines the file may have beyond two a tag before it is rewritten.
	slackLines = 4096
	// maxLines bounds one write to the file.
	maxLines = 1000
	// markWait is how long a refill waits for the file. A file that hangs for longer
	// delays no other refill until it is back.
	markWait = 250 * time.Millisecond
	// closeWait is how long Close waits for it. A busy disk needs seconds to sync, and a
	// stop has the time.
	closeWait = 5 * time.Second
)

// NewMarks returns marks that are kept in memory only.
func NewMarks() *Marks { return &Marks{ends: make(map[string]int64)} }

// OpenMarks reads the file at path, or creates it, and keeps the marks there.
func OpenMarks(path string) (*Marks, error) {
	ends, err := readLines(path)
	if err != nil {
		return nil, fmt.Errorf("reading the high-water marks: %w", err)
	}
	m := &Marks{ends: ends, unwritten: make(map[string]int64), path: path, disk: disk.NewRunner(markWait)}
	if err := m.rewrite(); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the high-water marks: %w", err), m.close())
	}
	return m, nil
}

// End is the end of all ranges of tag that were seen: the least ID that a new
// range may start with. 0 if none was seen.
func (m *Marks) End(tag string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ends[tag]
}

// Each calls f with the end of each tag that has a mark, as they are when it is called.
func (m *Marks) Each(f func(tag string, end int64)) {
	m.mu.Lock()
	ends := maps.Clone(m.ends)
	m.mu.Unlock()
	for tag, end := range ends {
		f(tag, end)
	}
}

// Observe raises the mark of tag to end, in memory: the IDs below are in use.
func (m *Marks) Observe(tag string, end int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ends[tag] = max(m.ends[tag], end)
}

// Record raises the mark of tag to end, in memory and in the file. It returns
// within markWait. After an error the mark is in memory, and may be in the file. The
// next Record writes it again.
func (m *Marks) Record(tag string, end int64) error {
	m.mu.Lock()
	m.ends[tag] = max(m.ends[tag], end)
	if m.disk == nil {
		m.mu.Unlock()
		return nil
	}
	m.unwritten[tag] = max(m.unwritten[tag], end)
	m.mu.Unlock()
	return m.disk.Run(m.write)
}

// write writes all unwritten marks into the file. These may be several, or none, because
// another call may have written them.
func (m *Marks) write() error {
	for m.file != nil {
		marks, tags := m.takeUnwritten()
		if len(marks) == 0 {
			break
		}
		if err := m.append(marks, tags); err != nil {
			return err
		}
	}
	return nil
}

// takeUnwritten takes up to maxLines of the unwritten marks. tags is the number of all
// tags that have a mark.
func (m *Marks) takeUnwritten() (marks map[string]int64, tags int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	marks = make(map[string]int64)
	for tag, end := range m.unwritten {
		if len(marks) == maxLines {
			break
		}
		marks[tag] = end
		delete(m.unwritten, tag)
	}
	return marks, len(m.ends)
}

// append adds the marks to the file, or rewrites the file if it has become long. Marks
// that it could not add are unwritten again.
func (m *Marks) append(marks map[string]int64, tags int) error {
	var failed error
	if m.lines > 2*tags+slackLines {
		if failed = m.rewrite(); failed == nil {
			return nil
		}
		m.lines = 2 * tags // a rewrite is much work: not again for each of the next lines
	}
	var lines []byte
	if m.torn {
		lines = append(lines, '\n') // ends the torn line, so that it does not spoil the next
	}
	for tag, end := range marks {
		lines = appendLine(lines, tag, end)
	}
	_, err := m.file.Write(lines)
	m.torn = err != nil
	if err == nil {
		m.lines += len(marks)
	} else {
		m.lines++ // the torn one
		m.mu.Lock()
		defer m.mu.Unlock()
		for tag, end := range marks {
			m.unwritten[tag] = max(m.unwritten[tag], end)
		}
	}
	return errors.Join(failed, err)
}

// Close writes what is not written, and syncs and closes the file. It returns
// within closeWait; a disk that hangs keeps the file open.
func (m *Marks) Close() error {
	if m.disk == nil {
		return nil
	}
	err := m.disk.RunWithin(closeWait, func() error {
		err := m.write()
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

func (m *Marks) close() error {
	f := m.file
	m.file = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// rewrite replaces the file by one with a line for each tag.
func (m *Marks) rewrite() error {
	m.mu.Lock()
	ends := maps.Clone(m.ends)
	m.mu.Unlock()
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
		m.lines, m.torn = len(ends), false
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
	return string(name), number, ok && err == nil && number > 0 && CheckTag(string(name)) == nil
}
