package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/internal/cli"
)

const (
	// settleFor is how long nothing may change until any one machine may stop. A replica on a machine that has just
	// been killed is silent before that time is over.
	settleFor = replicaSilent + 2*time.Second
	// startsFor is how long nothing may change if an embedded server may be starting: longer than an election in a
	// cluster, which takes 4 to 9 s.
	startsFor = 15 * time.Second
	lookEvery = 500 * time.Millisecond

	// waitDefault is the wait of a --wait without a time.
	waitDefault = "5m0s"
)

// await waits until any one machine may stop.
func (d *doctor) await(cmd *cobra.Command) error {
	if d.wait <= 0 {
		return cli.Usagef("--wait must be above zero, not %v", d.wait)
	}
	return d.Client.Run(cmd, func(s *cli.Session) error {
		shown := make(map[string]bool)
		last, found, err := await(s.Context(), d.wait, func(ctx context.Context) (look, error) {
			ctx, cancel := context.WithTimeout(ctx, d.Timeout)
			defer cancel()
			l := lookAround(ctx, s.Admin, s.JS)
			if s.NC.IsClosed() {
				return l, errors.New("the connection to NATS was lost, and no server of --server answers")
			}
			return l, l.denied()
		}, func(found []finding) {
			now := make(map[string]bool)
			for _, f := range found {
				if now[f.Found] = true; !shown[f.Found] {
					fmt.Fprintln(cmd.ErrOrStderr(), "waiting: "+cli.Safe(f.Found)+". Fix: "+f.Fix)
				}
			}
			shown = now
		})
		switch {
		case s.JSON:
			state := stateOK
			for i := range found {
				found[i].State, state = stateProblem, stateProblem
			}
			return errors.Join(err, cli.PrintJSON(s.Out(), diagnosis{state, append([]finding{}, found...)}))
		case err != nil:
			return err
		}
		_, err = fmt.Fprintln(s.Out(), "any one machine may stop. Generators: "+cli.Safe(names(last.nodes)))
		return err
	})
}

// await looks until any one machine may stop, and returns the last look, and what keeps them. report is called after
// each look with that.
func await(
	ctx context.Context, most time.Duration, lookAround func(context.Context) (look, error), report func([]finding),
) (last look, found []finding, err error) {
	ends, end := context.WithTimeout(ctx, most)
	defer end()
	var well time.Time // since then nothing keeps a machine, and nothing has changed
	for shape := ""; ; {
		now, err := lookAround(ends)
		switch {
		case err != nil && ends.Err() == nil:
			return now, found, err
		case ends.Err() != nil && last.streams != nil: // this look was cut short
			return last, found, gaveUp(ctx, most, last, found)
		}
		found = slices.DeleteFunc(now.findings(last), func(f finding) bool { return !f.stops })
		last = now
		at := time.Now()
		if s := now.shape(); len(found) > 0 {
			shape = ""
		} else if s != shape {
			well, shape = at, s
		}
		switch {
		case len(found) == 0 && at.Sub(well) >= now.settles():
			return last, nil, nil
		case slices.ContainsFunc(found, func(f finding) bool { return f.never }):
			return last, found, fmt.Errorf("no machine may stop, and waiting does not help:\n%s", help(found))
		}
		report(found)
		select {
		case <-ends.Done():
			return last, found, gaveUp(ctx, most, last, found)
		case <-time.After(lookEvery):
		}
	}
}

// gaveUp returns the error of a wait that was interrupted or took too long.
func gaveUp(ctx context.Context, most time.Duration, last look, found []finding) error {
	why := "interrupted"
	if ctx.Err() == nil {
		why = fmt.Sprintf("after %v", most)
	}
	if len(found) == 0 {
		return fmt.Errorf("%s: nothing is wrong, but not yet for %v: give a longer --wait", why, last.settles())
	}
	return fmt.Errorf("%s: no machine may stop:\n%s", why, help(found))
}

// help says what keeps the machines, and what to do.
func help(found []finding) string {
	var lines []string
	for _, f := range found {
		lines = append(lines, "  "+cli.Safe(f.Found))
		if f.Fix != "" {
			lines = append(lines, "    "+f.Fix)
		}
	}
	return strings.Join(lines, "\n")
}

// denied returns an error if the user of NATS may not ask.
func (l look) denied() error {
	if errors.Is(l.err, nats.ErrPermissionViolation) {
		return l.err
	}
	for _, s := range l.streams {
		if errors.Is(s.err, nats.ErrPermissionViolation) {
			return fmt.Errorf("this user of NATS may not ask for the streams of Leafbus: %w: let it publish to "+
				"$JS.API.STREAM.INFO.* and hear the answers, or give another user", s.err)
		}
	}
	return nil
}

// settles returns how long nothing may change until any one machine may stop. A server with an empty disk may count as
// current before it has copied the state. An embedded one is current when its generator says so. If no generator
// answers there, it may be starting.
func (l look) settles() time.Duration {
	answers := make(map[string]bool)
	embedded := false
	for _, s := range l.nodes {
		answers[s.Server] = true
		embedded = embedded || s.Embedded
	}
	for _, s := range l.streams {
		if !embedded || s.info == nil || s.info.Cluster == nil {
			continue
		}
		if !answers[s.info.Cluster.Leader] ||
			slices.ContainsFunc(s.info.Cluster.Replicas, func(r *jetstream.PeerInfo) bool { return !answers[r.Name] }) {
			return startsFor
		}
	}
	return settleFor
}

// shape is what must stay the same until any one machine may stop: who is there, and who leads.
func (l look) shape() string {
	var b strings.Builder
	for _, s := range l.nodes {
		fmt.Fprintln(&b, s.Node, s.Started, s.Server, s.Address)
	}
	for _, s := range l.streams {
		fmt.Fprint(&b, s.name)
		if s.info != nil && s.info.Cluster != nil {
			fmt.Fprint(&b, " ", s.info.Cluster.Leader)
			for _, r := range s.info.Cluster.Replicas {
				fmt.Fprint(&b, " ", r.Name)
			}
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}
