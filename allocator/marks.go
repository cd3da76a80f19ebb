package allocator

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"strconv"
	"sync"
)

// Marks remembers, for every tag, the end of all ranges that were seen: those
// that this generator reserved and those that it heard of from others. A store
// that offers a range below a mark went backwards.
//
// The generator's own marks are kept in a file, also after their tag is
// deleted: a line each, "crc32 tag end". A line is in the file before its range
// is served, so kill -9 loses nothing; what the operating system had not yet
// written, a power failure may lose. Lines that fail their checksum are passed
// over: a missing mark only makes the check weaker.
//
// Its methods are safe for concurrent use.
type Marks struct {
	mu   sync.Mutex
	ends map[string]int64

	// writing is held while the file is written, so that mu need not be: a disk
	// that hangs must not keep anybody from reading a mark.
	writing sync.Mutex
	file    *os.File // nil: kept in memory only
	lines   int      // in the file
	torn    bool     // its last line may be incomplete
}

// slackLines is how many lines the file may have beyond two a tag before it is
// written anew.
const slackLines = 4096

// NewMarks returns marks that are kept in memory only.
func NewMarks() *Marks { return &Marks{ends: make(map[string]int64)} }

// OpenMarks reads the file at path, or creates it, and keeps the marks there.
func OpenMarks(path string) (*Marks, error) {
	m := NewMarks()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the high-water marks: %w", err)
	}
	for line := range bytes.Lines(data) {
		if tag, end, ok := parseMark(line); ok {
			m.ends[tag] = max(m.ends[tag], end)
		}
	}
	if err := m.rewrite(path); err != nil {
		return nil, fmt.Errorf("writing the high-water marks: %w", err)
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

// Observe raises the mark of tag to end, in memory: another generator holds
// the IDs below.
func (m *Marks) Observe(tag string, end int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ends[tag] = max(m.ends[tag], end)
}

// Record raises the mark of tag to end, in memory and in the file. The mark in
// memory is raised also when the file could not be written.
func (m *Marks) Record(tag string, end int64) error {
	m.Observe(tag, end)
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.file == nil {
		return nil
	}
	var failed error
	if m.lines > 2*m.tags()+slackLines {
		if failed = m.rewrite(m.file.Name()); failed == nil {
			return nil
		}
	}
	var line []byte
	if m.torn {
		line = append(line, '\n') // that the torn one does not spoil this one
	}
	m.lines++
	_, err := m.file.Write(appendMark(line, tag, end))
	m.torn = err != nil
	return errors.Join(failed, err)
}

func (m *Marks) tags() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.ends)
}

// Close syncs and closes the file.
func (m *Marks) Close() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.file == nil {
		return nil
	}
	f := m.file
	m.file = nil
	return errors.Join(f.Sync(), f.Close())
}

// rewrite puts one line a tag into a new file that takes the place of the old
// one in one step, and goes on with it. writing must be held.
func (m *Marks) rewrite(path string) error {
	m.mu.Lock()
	ends := maps.Clone(m.ends)
	m.mu.Unlock()
	temp, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(temp)
	for tag, end := range ends {
		w.Write(appendMark(nil, tag, end)) // the error stays with w until Flush
	}
	err = errors.Join(w.Flush(), temp.Sync(), temp.Close())
	if err == nil { // else the old file is the better one
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		os.Remove(temp.Name())
		return err
	}
	// Opened by its lasting name: the name is what the next rewrite replaces.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if m.file != nil {
		m.file.Close()
	}
	m.file, m.lines, m.torn = f, len(ends), false
	return nil
}

func appendMark(b []byte, tag string, end int64) []byte {
	text := strconv.AppendInt(append([]byte(tag), ' '), end, 10)
	return fmt.Appendf(b, "%08x %s\n", crc32.ChecksumIEEE(text), text)
}

// parseMark reads a line of [appendMark]; ok is false for any other.
func parseMark(line []byte) (tag string, end int64, ok bool) {
	sum, text, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	if !ok || len(text)+len(sum)+2 != len(line) {
		return "", 0, false
	}
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || uint32(want) != crc32.ChecksumIEEE(text) {
		return "", 0, false
	}
	name, number, ok := bytes.Cut(text, []byte(" "))
	end, err = strconv.ParseInt(string(number), 10, 64)
	return string(name), end, ok && err == nil && end > 0 && CheckTag(string(name)) == nil
}
