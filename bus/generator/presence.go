package generator

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

// Generators tell each other once a second that they are there. Who was not
// heard of for three seconds is taken for gone.
const (
	beatEvery   = time.Second
	beatExpires = 3 * time.Second
	// claimExpires is how long a worker is not taken after another generator was
	// last heard to hold it, and how long it is claimed after it was lost: when a
	// registry has lost its records, those who ran learn it one after the other, and a
	// worker must not go from one to another whose clock is a little behind.
	claimExpires = 10 * time.Second
)

// beat is what a generator says of itself.
type beat struct {
	Node      string `json:"node"`
	ID        string `json:"id"`        // of this run of the generator
	Segment   bool   `json:"segment"`   // it can answer leaf.segment
	Snowflake bool   `json:"snowflake"` // and leaf.snowflake
	// Worker is the one that it holds, Lost are those that it held until a moment ago.
	Worker *int64  `json:"worker,omitempty"`
	Lost   []int64 `json:"lost,omitempty"`
	Gone   bool    `json:"gone,omitempty"` // its last word
	UnixMS int64   `json:"unix_ms"`        // its clock
	Number uint64  `json:"number"`         // of this run's beats, from 1
	Identity
}

// presence knows the other generators that are running. Its methods take the
// time and are safe for concurrent use.
type presence struct {
	self string // id of this run
	// turned can be read when what another generator can answer has changed.
	turned chan struct{}
	pulse  pulse // the own beats that came back

	mu     sync.Mutex
	others map[string]member    // by id
	claims map[int64]time.Time  // when a worker was last heard to be held
	lost   map[string]time.Time // by node: generators that fell silent without a last word, and when they were last heard
}

type member struct {
	beat
	heard time.Time
	// ahead is by how many ms this generator's clock was ahead of the other's when
	// the last beats arrived. The way of a beat adds to it, so the least is nearest.
	ahead []int64
}

// clockBeats is how many beats a clock is judged by.
const clockBeats = 5

func newPresence(self string) *presence {
	return &presence{self: self, turned: make(chan struct{}, 1), others: make(map[string]member), claims: make(map[int64]time.Time), lost: make(map[string]time.Time)}
}

// hear takes in another generator's beat, and reports whether that was not
// known. It returns none for the own and for what is no beat. clock is the own one, in Unix ms.
func (p *presence) hear(now time.Time, clock int64, data []byte) (b beat, isNew bool) {
	if json.Unmarshal(data, &b) != nil || b.ID == "" {
		return beat{}, false
	}
	if b.ID == p.self {
		p.pulse.came(now, b.Number)
		return beat{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if was := p.others[b.ID]; was.Segment != b.Segment || was.Snowflake != b.Snowflake || b.Gone {
		select {
		case p.turned <- struct{}{}:
		default:
		}
	}
	delete(p.lost, b.Node)
	if b.Gone {
		if worker := p.others[b.ID].Worker; worker != nil { // given up in order
			delete(p.claims, *worker)
		}
		delete(p.others, b.ID)
		return b, false
	}
	if b.Worker != nil {
		p.claims[*b.Worker] = now
	}
	for _, worker := range b.Lost {
		p.claims[worker] = now
	}
	m, known := p.others[b.ID]
	if !known { // those that were killed had no last word: forget them now and then
		p.expireLocked(now)
	}
	ahead := m.ahead
	if b.UnixMS > 0 { // an older version does not tell
		ahead = append(ahead, clock-b.UnixMS)
	}
	p.others[b.ID] = member{b, now, ahead[max(0, len(ahead)-clockBeats):]}
	return b, !known
}

// offset is by how many ms this generator's clock is ahead of the median of the others'; false:
// there are none.
func (p *presence) offset(now time.Time) (ms int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ahead []time.Duration
	for _, m := range p.others {
		if len(m.ahead) > 0 && now.Sub(m.heard) < beatExpires {
			ahead = append(ahead, time.Duration(slices.Min(m.ahead))*time.Millisecond)
		}
	}
	return snowflake.Median(ahead).Milliseconds(), len(ahead) > 0
}

// present returns the other generators that are there, by node.
func (p *presence) present(now time.Time) []beat {
	here, _ := p.roll(now)
	return here
}

// claimed reports whether another generator said lately that it holds the
// worker, or has just lost it.
func (p *presence) claimed(now time.Time, worker int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	heard, ok := p.claims[worker]
	return ok && now.Sub(heard) < claimExpires
}

// held reports whether another generator says that it holds the worker.
func (p *presence) held(now time.Time, worker int64) bool {
	return p.elsewhere(now, time.Time{}, func(b beat) bool { return b.Worker != nil && *b.Worker == worker })
}

// elsewhere reports whether another generator has said, later than since, what
// offered looks for.
func (p *presence) elsewhere(now, since time.Time, offered func(beat) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.others {
		if offered(m.beat) && m.heard.After(since) && now.Sub(m.heard) < beatExpires {
			return true
		}
	}
	return false
}
