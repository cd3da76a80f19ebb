package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/cli"
)

// States of a finding, the worst first.
const (
	stateProblem = "problem" // an operator must do something
	stateWarning = "warning"
	stateOK      = "ok"
)

// finding is one line of leaf doctor.
type finding struct {
	Check string `json:"check"`
	State string `json:"state"`
	Found string `json:"found"`
	Fix   string `json:"fix,omitempty"` // what to do, if Found does not say it

	// For leaf doctor --wait. A finding without a State is for it alone.
	stops bool // no machine may stop while it lasts
	never bool // waiting does not help
}

func (f finding) String() string {
	if f.Fix != "" {
		return cli.Safe(f.Found + ". Fix: " + f.Fix)
	}
	return cli.Safe(f.Found)
}

// diagnosis is what leaf doctor prints as JSON.
type diagnosis struct {
	State  string    `json:"state"` // the worst of the checks
	Checks []finding `json:"checks"`
}

// doctor is one run of leaf doctor, or of leaf serve --check.
//
//	examineNATS   doctornats.go: the checks, each by examine
//	  permissions   doctorrights.go
//	  look          doctorlook.go: streams; doctornats.go: generators
//	conclude      prints
type doctor struct {
	timeout  time.Duration        // of each check
	look     look                 // at generators and streams
	have     kvstore.Installation // its record; without an ID there is none, or it cannot be read
	findings []finding
}

// examine runs one check. It returns what is well, nothing if there was nothing to check, or an
// error. What it adds itself is a finding instead.
func (d *doctor) examine(ctx context.Context, name string, check func(context.Context) (string, error)) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	before := len(d.findings)
	switch found, err := check(ctx); {
	case err != nil:
		d.add(failed(name, err))
	case len(d.findings) == before && found != "":
		d.add(finding{Check: name, State: stateOK, Found: found})
	}
}

func (d *doctor) add(f finding) { d.findings = append(d.findings, f) }

// failed is the finding of a check that failed. An error that says only that something does not
// answer needs advice.
func failed(check string, err error) finding {
	f := finding{State: stateProblem, Found: err.Error()}
	if _, ofJetStream := errors.AsType[*jetstream.APIError](err); ofJetStream {
		f = jetStreamFinding(err)
	}
	f.Check = check
	if _, network := errors.AsType[net.Error](err); network || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, allocator.ErrUnavailable) || errors.Is(err, nats.ErrTimeout) {
		f.Fix = "see that it runs there, that no firewall is between, and that the address and the password are right, " +
			"or give a larger --timeout"
	}
	return f
}

// conclude prints what was found. It returns an error if there is a problem.
func (d *doctor) conclude(w io.Writer, asJSON bool) error {
	problems := 0
	for _, f := range d.findings {
		if f.State == stateProblem {
			problems++
		}
	}
	err := printFindings(w, d.findings, asJSON)
	if problems == 0 || err != nil {
		return err
	}
	return fmt.Errorf("%s found; the lines above say what to do", cli.Counted(problems, "problem"))
}

// printFindings writes findings, the worst first.
func printFindings(w io.Writer, found []finding, asJSON bool) error {
	order := []string{stateProblem, stateWarning, stateOK}
	slices.SortStableFunc(found, func(x, y finding) int {
		return cmp.Compare(slices.Index(order, x.State), slices.Index(order, y.State))
	})
	if asJSON {
		worst := stateOK
		if len(found) > 0 {
			worst = found[0].State
		}
		return cli.PrintJSON(w, diagnosis{worst, append([]finding{}, found...)})
	}
	for _, f := range found {
		if _, err := fmt.Fprintf(w, "%-8s %-20s %v\n", f.State, f.Check, f); err != nil {
			return err
		}
	}
	return nil
}
