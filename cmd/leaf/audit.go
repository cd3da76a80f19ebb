package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/cli"
)

func newAuditCmd() *cobra.Command {
	var f cli.Client
	var taken string // a file
	cmd := &cobra.Command{
		Use:   "audit [TAG...]",
		Short: "Check that no ID was claimed twice",
		Long: `Check that no ID was claimed twice, by the events that the stream still has, the records
of tags and, without TAG, the registry of workers. It changes nothing. The exit status
is 1 if there is a contradiction. docs/operate.md#audit explains the columns, the
contradictions and --taken.`,
		Example: `  leaf audit
  leaf audit order
  leaf audit --json > audit.json
  leaf get order -n 5000 --ranges > ids.txt; leaf audit order --taken ids.txt`,
		Args: func(_ *cobra.Command, tags []string) error {
			for _, tag := range tags {
				if err := idspace.CheckTag(tag); err != nil {
					return fmt.Errorf("%w; leave TAG out for all tags", err)
				}
			}
			return nil
		},
	}
	var given *audit.Taken
	f.Command(cmd, func(s *cli.Session, tags []string) error {
		r, err := audit.Run(s.Context(), kvstore.AuditSource(s.Admin, s.JS), audit.Options{Tags: tags, Taken: given,
			Progress: func(what string, done, total uint64) { s.Progress(what, int64(done), int64(total)) }})
		if err != nil {
			return err
		}
		wantsEvents := func(t audit.TagAudit) bool { return t.End > 1 && t.Order != idspace.OrderStrict }
		if r.Events == 0 && slices.ContainsFunc(r.Tags, wantsEvents) {
			s.Warnf("no events, so only the records were compared: does `nats stream info %s` find the stream?", events.Stream)
		}
		err = s.Print(r, func(w io.Writer) { printAudit(w, r) })
		if n := len(r.Contradictions); n > 0 {
			err = errors.Join(err, fmt.Errorf("the audit found %s: docs/operate.md#contradictions says what to do",
				cli.Counted(n, "contradiction")))
		}
		return errors.Join(err, unknownTags(r, tags))
	})
	cmd.PreRunE = func(cmd *cobra.Command, tags []string) (err error) { // status 1 is for contradictions
		if taken != "" {
			given, err = readTaken(cmd.InOrStdin(), taken, tags)
		}
		return err
	}
	cmd.Flags().StringVar(&taken, "taken", "",
		"also check the IDs in `FILE`, which callers got, as leaf get --ranges prints them")
	return cmd
}

// readTaken reads the IDs that callers got from a file, or from stdin if its name is "-".
func readTaken(from io.Reader, name string, tags []string) (*audit.Taken, error) {
	only := ""
	if len(tags) == 1 {
		only = tags[0]
	}
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("--taken: %w", err)
		}
		defer file.Close()
		from = file
	}
	var taken audit.Taken
	if err := taken.Read(from, only); err != nil {
		return nil, fmt.Errorf("--taken: %s: %w", name, err)
	}
	return &taken, nil
}

// unknownTags returns an error about those of the named tags of which nothing is known.
func unknownTags(r *audit.Report, named []string) (err error) {
	known := make(map[string]bool)
	for _, t := range r.Tags {
		known[t.Tag] = t.End != 0 || t.Events != 0 || len(t.Contradictions) != 0
	}
	for _, tag := range named {
		if !known[tag] {
			err = errors.Join(err, unknownTag(tag))
		}
	}
	return err
}

// printAudit writes the tags, the workers, the contradictions, and a last line that sums up.
func printAudit(w io.Writer, r *audit.Report) {
	tags := []cli.Row{{"TAG", "CLAIMED BELOW", "EVENTS", "REPORTED", "UNREPORTED", "SINCE"}}
	for _, t := range r.Tags {
		row := cli.Row{t.Tag, t.End, t.Events, t.Reported, t.Unreported, t.Since}
		if t.Order == idspace.OrderStrict && t.Events == 0 { // it has no refill events, so none is missing
			row[2], row[3], row[4] = "", "", ""
		}
		tags = append(tags, row)
	}
	workers := []cli.Row{{"WORKER", "HOLDER", "MAY ISSUE UNTIL", "STATE"}}
	for _, of := range r.Workers {
		state := "no record"
		if of.Node != "" {
			state = stateOf(of)
		}
		workers = append(workers, cli.Row{of.Worker, of.Node, of.ReservedUntil, state})
	}
	for _, table := range [][]cli.Row{tags, workers} {
		if len(table) > 1 {
			cli.PrintTable(w, table...)
		}
	}
	for _, c := range r.Contradictions {
		about := strings.TrimSuffix(string(c.Kind)+" "+c.Tag, " ")
		fmt.Fprintln(w, cli.Safe(fmt.Sprintf("CONTRADICTION %s: %s", about, cmp.Or(c.Message, "no message"))))
	}
	fmt.Fprintln(w, summary(r))
}

// summary is the last line: what was compared, and whether it agrees.
func summary(r *audit.Report) string {
	text := "no events"
	if r.Events > 0 {
		text = fmt.Sprintf("%s since %s", cli.Counted(r.Events, "event"), cli.Time(r.Since))
	}
	text += ", " + cli.Counted(len(r.Tags), "tag")
	if len(r.Workers) > 0 {
		text += ", " + cli.Counted(len(r.Workers), "worker")
	}
	if t := r.Taken; t != nil {
		text += fmt.Sprintf(", %d IDs taken (%d again, %d never claimed)", t.IDs, t.Repeated, t.Unclaimed)
	}
	if n := len(r.Contradictions); n > 0 {
		return text + ": " + strings.ToUpper(cli.Counted(n, "contradiction"))
	}
	return text + ": no contradiction"
}

// unknownTag is the error that a generator answers, for commands that ask none.
func unknownTag(tag string) error {
	return &bus.Error{Code: 404, Reason: bus.UnknownTag, Message: tag + ": unknown tag"}
}
