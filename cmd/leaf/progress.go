package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"time"
)

const progressEvery = 200 * time.Millisecond

// progress shows on a terminal how far long work is. Elsewhere, and where the
// work is short, it shows nothing.
type progress struct {
	w           io.Writer // nil: not a terminal
	done, total int64
	start, last time.Time
	shown       bool
}

func newProgress(w io.Writer, total int64) *progress {
	p := &progress{total: total, start: time.Now(), last: time.Now()}
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		p.w = w
	}
	return p
}

// add notes that n more are done.
func (p *progress) add(n int64) {
	p.done += n
	now := time.Now()
	if p.w == nil || now.Sub(p.last) < progressEvery {
		return
	}
	p.last, p.shown = now, true
	rate := float64(p.done) / now.Sub(p.start).Seconds()
	// An import of more IDs than that takes years.
	left := time.Duration(min(float64(p.total-p.done)/rate, math.MaxInt32) * float64(time.Second)).Round(time.Second)
	fmt.Fprintf(p.w, "\r\x1b[K%d of %d IDs (%.0f %%), %.0f/s, %v left", p.done, p.total, float64(p.done)/float64(p.total)*100, rate, left)
}

// end wipes the line.
func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
