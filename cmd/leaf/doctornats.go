package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/internal/wire"
)

// fullPercent of what a stream may store is worth a warning.
const fullPercent = 80

// examineNATS runs the checks of NATS. What follows from a JetStream that does not answer is left
// out.
func (d *doctor) examineNATS(s *cli.Session) {
	ctx := s.Context()
	d.examine(ctx, "nats", func(context.Context) (string, error) {
		return fmt.Sprintf("%s runs nats-server %s", s.NC.ConnectedUrlRedacted(), s.NC.ConnectedServerVersion()),
			installation.CheckServer(s.NC)
	})
	d.examine(ctx, "permissions", func(ctx context.Context) (string, error) { return d.permissions(ctx, s) })
	looking, cancel := context.WithTimeout(ctx, d.timeout)
	d.look = lookAround(looking, s.Admin, s.JS)
	cancel()
	if silence := d.look.streams[0].err; silence != nil {
		f := jetStreamFinding(silence)
		f.Check = "jetstream"
		d.add(f)
		return
	}
	d.examine(ctx, "installation", func(ctx context.Context) (string, error) {
		return d.installation(ctx, kvstore.Config{JS: s.JS})
	})
	d.examine(ctx, "streams", d.streams)
}

// examineGenerators adds what the generators find, and what is wrong with the replicas.
func (d *doctor) examineGenerators(s *cli.Session) {
	d.examine(s.Context(), "generators", func(context.Context) (string, error) {
		for _, f := range d.look.findings(look{}) {
			if f.State != "" && (f.Check != "streams" || d.look.streams[0].err == nil) {
				d.add(f)
			}
		}
		if slices.ContainsFunc(d.look.nodes, func(s admin.State) bool { return !s.Embedded }) {
			d.add(finding{Check: "generators", State: stateWarning,
				Found: "it cannot be seen from here whether the NATS servers that were joined sync each write",
				Fix:   "look for sync_always in http://HOST:8222/varz (docs/operate.md)"})
		}
		return cmp.Or(names(d.look.nodes), "none runs"), nil
	})
}

// installation reads the record of the installation.
func (d *doctor) installation(ctx context.Context, cfg kvstore.Config) (string, error) {
	have, ok, err := kvstore.ReadInstallation(ctx, cfg)
	if tags := d.look.stream("KV_" + wire.BucketTags); err == nil && !ok && tags != nil && tags.State.Msgs > 0 {
		err = errors.New("JetStream has tags, but lost the record of the installation: write it again, as " +
			"docs/operate.md says")
	}
	if err != nil || !ok {
		return "this NATS has no installation yet: the first generator makes it, " +
			"unless one waits for a record (see generators)", err
	}
	d.have = have
	return fmt.Sprintf("installation %s of %s: tags in %s, workers in %s", have.ID, cli.Time(have.Created), have.Store,
		have.Registry), nil
}

// streams checks the settings of the buckets.
func (d *doctor) streams(context.Context) (string, error) {
	for _, s := range d.look.streams {
		bucket, isBucket := strings.CutPrefix(s.name, "KV_")
		if s.info == nil || !isBucket {
			continue
		}
		c, state := s.info.Config, s.info.State
		if err := kvstore.Fit(bucket, c); err != nil {
			d.add(failed("streams", err))
		}
		full := func(has uint64, most int64) bool { return most > 0 && has >= uint64(most)/100*fullPercent }
		if full(state.Bytes, c.MaxBytes) || full(state.Msgs, c.MaxMsgs) {
			d.add(finding{Check: "streams", State: stateWarning,
				Found: fmt.Sprintf("stream %s has %d of at most %d bytes and %d of at most %d records, and takes no writes "+
					"when it is full", s.name, state.Bytes, c.MaxBytes, state.Msgs, c.MaxMsgs),
				Fix: "nats stream edit " + s.name + " --max-bytes SIZE --max-msgs=-1"})
		}
	}
	return "the settings of the buckets are fit", nil
}

// causes returns what the generators find, one line a cause, and the generators that are not ready
// for no such cause.
func (l look) causes() (found []finding) {
	for _, c := range admin.Causes(l.nodes) {
		if c.Kind == "replicas.few" { // which the look at the streams has
			continue
		}
		first := c.Findings[0]
		nodes := make([]string, len(c.Findings))
		for i, f := range c.Findings {
			nodes[i] = f.Node
		}
		about := strings.Join(nodes, ", ")
		if n := first.Count; n > 0 {
			about += " about " + strings.Join(first.Keys, ", ")
			if more := n - len(first.Keys); more > 0 {
				about += fmt.Sprintf(" and %d more", more)
			}
		}
		f := finding{Check: c.Kind, State: stateProblem, Found: about + ": " + first.Message,
			Fix: first.Do + "; see docs/runbook.md#" + strings.ReplaceAll(c.Kind, ".", "")}
		if c.Severity == admin.Warning {
			f.State = stateWarning
		}
		found = append(found, f)
	}
	for _, s := range l.nodes {
		for _, part := range s.Missing {
			f := finding{Check: "generators", stops: true, Fix: "docs/runbook.md#leafcannotserve",
				Found: fmt.Sprintf("%s lacks its %s: %s", s.Node, part, s.Reasons[part])}
			if len(s.Findings) == 0 {
				f.State = stateProblem
			}
			found = append(found, f)
		}
	}
	return found
}

// alone returns why a service depends on one machine. That only keeps machines from stopping: it
// may be meant so.
func (l look) alone() (found []finding) {
	if len(l.nodes) == 0 {
		return []finding{{Check: "generators", State: stateProblem, Found: "no generator answers",
			Fix: "start some with leaf serve, on at least two machines", stops: true}}
	}
	for _, name := range []string{"segments", "snowflakes"} {
		able := slices.DeleteFunc(slices.Clone(l.nodes), func(s admin.State) bool {
			return name == "segments" && !s.Segment || name == "snowflakes" && !s.Snowflake
		})
		servers := make(map[string]bool)
		for _, s := range able {
			servers[cmp.Or(s.Server, s.Address)] = true
		}
		if len(able) < 2 || len(servers) < 2 {
			found = append(found, finding{Check: "generators", stops: true,
				Found: fmt.Sprintf("generators that can answer with %s: %d (%s), at %d NATS servers", name, len(able),
					names(able), len(servers)),
				Fix: "start another generator on another machine. In a cluster, generators move to other servers within a " +
					"minute; if not, give each the addresses of several (--server), and make sure that it can reach them"})
		}
	}
	return found
}

func names(nodes []admin.State) string {
	all := make([]string, len(nodes))
	for i, s := range nodes {
		all[i] = s.Node
	}
	return strings.Join(all, ", ")
}
