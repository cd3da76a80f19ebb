package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/internal/cli"
)

const (
	// settleFor is how long nothing may be wrong until any one machine may stop: longer than an
	// election in a cluster, which takes 4 to 9 s. A replica on a machine that was just killed is
	// silent before that. A server with an empty disk may count as current before it has copied the
	// state.
	settleFor = 15 * time.Second
	lookEvery = 500 * time.Millisecond
)

func newDoctorCmd() *cobra.Command {
	var f cli.Client
	var wait time.Duration
	cmd := f.Command(&cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong, and what to do",
		Long: `Say what is wrong with an installation, and what to do: what the generators find,
and what only the outside sees, such as the rights of this NATS user. It prints one
line for each finding, the worst first. It changes nothing. The exit status is 1 if
there is a problem, and 3 if there is no NATS server or no generator. What a start
needs is for "leaf serve --check".

With --wait it waits until any one machine may stop without an interruption, for
example before you restart it. docs/operate.md says what it cannot know.`,
		Example: `  leaf doctor
  leaf doctor -s nats://10.0.0.5:4222 --json
  leaf doctor --wait && ssh a systemctl restart leaf       machine a may stop
  leaf doctor --wait=30m -s nats://a:4222,nats://b:4222`,
	}, func(s *cli.Session, _ []string) error {
		if wait > 0 {
			return awaitRedundancy(s, wait)
		}
		d := doctor{timeout: s.Timeout}
		d.examineNATS(s)
		d.examineGenerators(s)
		err := d.conclude(s.Out, s.JSON)
		if err != nil && len(d.look.nodes) == 0 && d.look.err == nil {
			err = cli.Nobody{Err: err}
		}
		return err
	})
	fs := cmd.Flags()
	cli.Number(fs, &wait, "wait", 0, 1, math.MaxInt64,
		"wait until any one machine may stop, for at most this `TIME`: --wait=30m")
	fs.Lookup("wait").NoOptDefVal = "5m0s"
	f.OwnInboxes(fs)
	return cmd
}

// awaitRedundancy waits until any one machine may stop.
func awaitRedundancy(s *cli.Session, most time.Duration) error {
	shown := make(map[string]bool)
	last, found, err := await(s.Context(), most, func(ctx context.Context) (look, error) {
		ctx, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		if s.NC.IsClosed() {
			return look{}, errors.New("the connection to NATS was lost, and no server of --server answers")
		}
		return lookAround(ctx, s.Admin, s.JS), nil
	}, func(found []finding) {
		now := make(map[string]bool)
		for _, f := range found {
			if now[f.Found] = true; !shown[f.Found] {
				fmt.Fprintf(s.Cmd.ErrOrStderr(), "waiting: %v\n", f)
			}
		}
		shown = now
	})
	switch {
	case s.JSON:
		err = errors.Join(err, printFindings(s.Out, found, true))
	case err == nil:
		fmt.Fprintln(s.Out, "any one machine may stop. Generators: "+cli.Safe(names(last.nodes)))
	}
	return err
}

// await looks until any one machine may stop, and returns the last look, and what keeps them.
// report is called after each look with that.
func await(
	ctx context.Context, most time.Duration, lookAround func(context.Context) (look, error), report func([]finding),
) (last look, found []finding, err error) {
	ends, end := context.WithTimeout(ctx, most)
	defer end()
	var well time.Time // since then nothing keeps a machine
	for {
		now, err := lookAround(ends)
		if ends.Err() == nil || last.streams == nil { // else this look was cut short
			if err != nil {
				return now, found, err
			}
			found = slices.DeleteFunc(now.findings(last), func(f finding) bool { return !f.stops })
			for i := range found {
				found[i].State = stateProblem
			}
			last = now
			switch {
			case len(found) > 0:
				well = time.Time{}
			case well.IsZero():
				well = time.Now()
			case time.Since(well) >= settleFor:
				return now, nil, nil
			}
			report(found)
		}
		why := fmt.Sprintf("after %v", most)
		switch {
		case slices.ContainsFunc(found, func(f finding) bool { return f.never }):
			why = "waiting does not help"
		case ctx.Err() != nil:
			why = "interrupted"
		case ends.Err() == nil:
			select {
			case <-ends.Done():
			case <-time.After(lookEvery):
			}
			continue
		}
		text := why + ": no machine may stop yet"
		if len(found) == 0 {
			text += fmt.Sprintf(": nothing is wrong, but not yet for %v: give a longer --wait", settleFor)
		}
		for _, f := range found {
			text += fmt.Sprintf("\n  %v", f)
		}
		return last, found, errors.New(text)
	}
}
