package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// waiting is how many callers measure the capacity: more than are answered while the generator runs once.
	waiting = 2000
	// giveUp is how long callers wait for an answer.
	giveUp = 500 * time.Millisecond
	// A slowed generator runs for slowRuns in each slowPeriod. So neither its callers nor the server are the limit.
	slowRuns, slowPeriod = time.Millisecond, 50 * time.Millisecond
)

// overload sends more requests than a generator in a process of its own can answer. It compares what the generator
// answers in time with what it answers to callers that wait for its answers.
func overload(l *lab) *table {
	l.duration *= 5 // a generator needs a moment to see that it has too much
	s := l.site()
	l.slowed(s)
	nc := s.dial()
	subject := wire.SubjectSegment + ".bench"
	var capacity float64
	closed := l.calls(func(int) error {
		for {
			_, err := nc.Request(subject, nil, giveUp)
			if !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, nats.ErrTimeout) {
				return err
			}
			time.Sleep(time.Millisecond) // it takes a part of the requests
		}
	})
	calm := func(int) (sample, error) {
		found, err := closed(waiting)
		capacity = found.perSecond
		return found, err
	}

	var rows []row
	for _, factor := range []float64{0.5, 0.8, 1.5, 3} {
		flood := func(int) (sample, error) { return l.flood(nc, subject, factor*capacity) }
		rows = append(rows, row{fmt.Sprintf("%g times the capacity", factor), 1, calm, flood})
	}
	return l.measure("overload: answered in 500 ms", rows...)
}

// flood sends requests at this rate, however many are answered.
func (l *lab) flood(nc *nats.Conn, subject string, rate float64) (sample, error) {
	var mu sync.Mutex
	var took []float64
	request := func() {
		ctx, cancel := context.WithTimeout(l.ctx, giveUp)
		defer cancel()
		begin := time.Now()
		answer, err := nc.RequestWithContext(ctx, subject, nil)
		if err != nil || bus.ReplyError(answer) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, float64(time.Since(begin))/1e3)
	}
	var all sync.WaitGroup
	begin, sent := time.Now(), 0
	for now := range time.Tick(time.Millisecond) {
		if now.Sub(begin) > l.duration || l.ctx.Err() != nil {
			break
		}
		for ; float64(sent) < now.Sub(begin).Seconds()*rate; sent++ {
			all.Go(request)
		}
	}
	all.Wait()
	found := sample{perSecond: float64(len(took)) / l.duration.Seconds()}
	if slices.Sort(took); len(took) > 0 {
		found.p50, found.p99 = took[len(took)/2], took[len(took)*99/100]
	}
	return found, l.ctx.Err()
}

// slowed starts `leaf serve` at a site. It stands still for most of the time, until the end of the scenario.
func (l *lab) slowed(s *site) {
	leaf := filepath.Join(s.dir, "leaf")
	build := exec.CommandContext(l.ctx, "go", "build", "-o", leaf, "github.com/leafbus/leafbus/cmd/leaf")
	build.Stderr = os.Stderr
	check(build.Run())
	serve := exec.Command(leaf, "serve", "-s", s.server.ClientURL(), "--tag", "bench:1000000", "--http", "",
		"--data-dir", filepath.Join(s.dir, "overload"))
	serve.Env, serve.Stderr = []string{"HOME=" + s.dir}, os.Stderr
	out := must(serve.StdoutPipe())
	check(serve.Start())
	if !bufio.NewScanner(out).Scan() {
		check(errors.Join(errors.New("leaf serve did not become ready"), serve.Wait()))
	}
	ctx, end := context.WithCancel(context.Background())
	var pausing sync.WaitGroup
	pausing.Go(func() {
		for ctx.Err() == nil {
			check(serve.Process.Signal(syscall.SIGSTOP))
			time.Sleep(slowPeriod - slowRuns)
			check(serve.Process.Signal(syscall.SIGCONT))
			time.Sleep(slowRuns)
		}
	})
	l.atEnd(func() error {
		end()
		pausing.Wait()
		return errors.Join(serve.Process.Signal(syscall.SIGTERM), serve.Wait())
	})
}
