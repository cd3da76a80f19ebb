package bus

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

const (
	// headerTimeout says how many ms the sender of an administrative request waits for the
	// answer. After that the sender takes the request as failed, so no generator may do it.
	headerTimeout = "Leaf-Timeout"
	// maxAdminTimeout bounds the work on an administrative request, even if the sender
	// waits longer. A sender without the header is assumed to wait for DefaultTimeout.
	maxAdminTimeout = 10 * time.Second
	// maxAnswerTime is the most time that is kept for the way of the answer.
	maxAnswerTime = 250 * time.Millisecond
)

// readPatience returns how long a sender waits, from the header headerTimeout.
func readPatience(header string) (time.Duration, error) {
	if header == "" {
		return DefaultTimeout, nil
	}
	ms, err := strconv.ParseUint(header, 10, 32)
	if err != nil {
		return 0, badRequest("the header %s is %s, not a number of milliseconds", headerTimeout, quote([]byte(header)))
	}
	return min(time.Duration(ms)*time.Millisecond, maxAdminTimeout), nil
}

// tellPatience returns the header of a request that waits until the context is done; empty:
// the context has no deadline.
func tellPatience(ctx context.Context) string {
	end, ok := ctx.Deadline()
	if !ok {
		return ""
	}
	return strconv.FormatInt(max(0, min(time.Until(end), maxAdminTimeout)).Milliseconds(), 10)
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
	return &Error{Code: 503, Reason: Draining, Message: fmt.Sprintf("generator %s stood still or was cut off when this came, "+
		"or the sender waits for too short a time: nothing was done, send it again", g.cfg.Node)}
}
