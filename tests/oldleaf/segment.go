package main

import (
	"database/sql"
	"errors"
	"log"
	"sync"
	"time"
)

// What Leaf answers instead of an ID.
const (
	codeUnknown = -2
	codeNone    = -3
)

var (
	errUnknown = errors.New("unknown tag")
	errNone    = errors.New("both segments are empty")
)

// How Leaf chooses the step of a load, from the third one on.
const (
	mostStep   = 1_000_000
	keepFor    = 15 * time.Minute // a segment that lasted less doubles the step
	halveAfter = 30 * time.Minute
)

// patience is how long a request waits for a load under way, once.
const patience = 10 * time.Millisecond

// tags are those of the table, as they were read last.
type tags struct {
	db *sql.DB

	mu      sync.Mutex
	buffers map[string]*buffer
}

// refresh adds the tags that are new in the table, and drops those that are gone. An empty table drops none, as in
// Leaf.
func (t *tags) refresh() {
	names, err := t.names()
	if err != nil {
		log.Print("reading the tags: ", err)
	}
	if len(names) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.buffers
	t.buffers = make(map[string]*buffer)
	for _, name := range names {
		if t.buffers[name] = old[name]; old[name] == nil {
			t.buffers[name] = &buffer{db: t.db, tag: name}
		}
	}
}

func (t *tags) names() (names []string, err error) {
	rows, err := t.db.Query("SELECT biz_tag FROM leaf_alloc")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// next returns an ID of a tag.
func (t *tags) next(tag string) (int64, error) {
	t.mu.Lock()
	b := t.buffers[tag]
	t.mu.Unlock()
	if b == nil {
		return 0, errUnknown
	}
	return b.take()
}

// segment is a range of which IDs are handed out.
type segment struct{ next, end, step int64 }

// buffer is a tag's two segments.
type buffer struct {
	db  *sql.DB
	tag string

	mu      sync.Mutex
	current segment
	spare   *segment      // nil: not loaded
	loading chan struct{} // closed when the load under way has ended; nil: none
	loads   int
	step    int64 // of the last load
	least   int64 // the table's step
	loaded  time.Time
}

// take returns an ID. The first request loads the first segment, and all others wait for that. Later ones are loaded
// beside the requests, as soon as a tenth of the current one is used.
func (b *buffer) take() (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loads == 0 {
		s, least, err := b.load(0)
		if err != nil {
			log.Printf("%s: %v", b.tag, err)
			return 0, errNone
		}
		b.current = s
		b.adopt(s, least)
	}
	for waited := false; ; {
		c := &b.current
		if b.spare == nil && b.loading == nil && float64(c.end-c.next) < 0.9*float64(c.step) {
			b.loading = make(chan struct{})
			go b.loadSpare(b.nextStep(), b.loading)
		}
		switch {
		case c.next < c.end:
			c.next++
			return c.next - 1, nil
		case b.spare != nil:
			b.current, b.spare = *b.spare, nil
		case waited:
			return 0, errNone
		default:
			waited = true
			b.await(b.loading)
		}
	}
}

// await waits for a load with the lock released.
func (b *buffer) await(loading chan struct{}) {
	b.mu.Unlock()
	defer b.mu.Lock()
	select {
	case <-loading:
	case <-time.After(patience):
	}
}

func (b *buffer) loadSpare(step int64, done chan struct{}) {
	defer close(done)
	s, least, err := b.load(step)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.loading = nil
	if err != nil {
		log.Printf("%s: %v", b.tag, err)
		return
	}
	b.spare = &s
	b.adopt(s, least)
}

// load reserves a segment in one transaction; step 0: as long as the table's step, which is the second result.
func (b *buffer) load(step int64) (s segment, least int64, err error) {
	tx, err := b.db.Begin()
	if err != nil {
		return s, 0, err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if step > 0 {
		_, err = tx.Exec("UPDATE leaf_alloc SET max_id = max_id + ? WHERE biz_tag = ?", step, b.tag)
	} else {
		_, err = tx.Exec("UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = ?", b.tag)
	}
	if err != nil {
		return s, 0, err
	}
	var name string
	var end int64
	row := tx.QueryRow("SELECT biz_tag, max_id, step FROM leaf_alloc WHERE biz_tag = ?", b.tag)
	if err := row.Scan(&name, &end, &least); err != nil {
		return s, 0, err // the row is gone
	}
	if step == 0 {
		step = least
	}
	return segment{next: end - step, end: end, step: step}, least, tx.Commit()
}

// adopt notes a load for the choice of the next step.
func (b *buffer) adopt(s segment, least int64) {
	if b.loads++; b.loads > 1 {
		b.loaded = time.Now()
	}
	b.step, b.least = s.step, least
}

// nextStep is the step of the next load; 0: the table's, as the first two are. Later ones depend on the time since the
// last.
func (b *buffer) nextStep() int64 {
	if b.loads < 2 {
		return 0
	}
	switch since := time.Since(b.loaded); {
	case since < keepFor && 2*b.step <= mostStep:
		return 2 * b.step
	case since >= halveAfter && b.step/2 >= b.least:
		return b.step / 2
	}
	return b.step
}
