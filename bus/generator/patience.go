package generator

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// maxAnswerTime is the most time that is kept for the way of the answer.
const maxAnswerTime = 250 * time.Millisecond

// readPatience returns how long a sender waits, from the header wire.HeaderTimeout.
func readPatience(header string) (time.Duration, error) {
	if header == "" {
		return bus.DefaultTimeout, nil
	}
	ms, err := strconv.ParseUint(header, 10, 32)
	if err != nil {
		return 0, badRequest("the header %s is %s, not a number of milliseconds", wire.HeaderTimeout, wire.Quote([]byte(header)))
	}
	return min(time.Duration(ms)*time.Millisecond, wire.MaxAdminTimeout), nil
}

// answerTime is how much of a sender's patience is kept for the way of the answer.
func answerTime(patience time.Duration) time.Duration { return min(patience/10, maxAnswerTime) }

// inTime returns an error if a change must not begin any more. It reads the clock, because a
// process that stood still may not have noticed yet that the context is done.
func (g *Generator) inTime(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		return g.late()
	}
	return nil
}

// late is the error of a request that came so late that its sender may have given up.
func (g *Generator) late() error {
	return &bus.Error{Code: 503, Reason: bus.Draining, Message: fmt.Sprintf("generator %s stood still or was cut off when this came, "+
		"or the sender waits for too short a time: nothing was done, send it again", g.cfg.Node)}
}
