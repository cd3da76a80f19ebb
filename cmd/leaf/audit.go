package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/cli"
)

// auditFlags say what else to audit.
type auditFlags struct {
	cli.Client
	taken string // a file
}

func newAuditCmd() *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use:   "audit [TAG...]",
		Short: "Check that no ID was claimed twice",
		Long: `Check that no ID was claimed twice. It compares the events that the stream still has
with the records of tags and, without TAG, the registry of workers. It changes nothing,
and may run while generators serve.

The exit status is 1 if there is a contradiction. Lost IDs are no contradiction: a
generator that was killed leaves a gap. Strict tags have no events of their claims: use
--taken to check their IDs.

With --taken it also compares IDs that callers got. FILE has ranges, one a line, as
leaf get --ranges writes them. If you name one TAG, the lines are of that tag. Else each
line begins with its tag and a space. "-" reads stdin.

docs/operate.md#audit has what each column and each contradiction means.`,
		Example: `  leaf audit
  leaf audit order
  leaf audit --json > audit.json
  leaf get order -n 5000 --ranges > ids.txt; leaf audit order --taken ids.txt`,
		Args: func(_ *cobra.Command, tags []string) error {
			for _, tag := range tags {
				if tag == "" {
					return errors.New("TAG is empty: leave it out for all tags")
				}
			}
			return nil
		},
		ValidArgsFunction: f.CompleteTags(math.MaxInt),
		RunE:              f.run,
	}
	cmd.Flags().StringVar(&f.taken, "taken", "", "also check the IDs of tags in `FILE`, which callers got")
	f.Register(cmd)
	return cmd
}

func (f *auditFlags) run(cmd *cobra.Command, tags []string) error {
	o, err := f.options(cmd, tags)
	if err != nil {
		return err
	}
	return f.Run(cmd, func(s *cli.Session) error {
		p := cli.NewProgress(cmd.ErrOrStderr())
		o.Progress = func(what string, done, total uint64) { p.At(what, int64(done), int64(total)) }
		r, err := audit.Run(cmd.Context(), kvstore.AuditSource(s.Admin, s.JS), o)
		p.End()
		if err != nil {
			return s.Failed(err)
		}
		if r.Events == 0 && slices.ContainsFunc(r.Tags, wantsEvents) {
			s.Warnf("no events, so only the records were compared: does `nats stream info %s` find the stream?", events.Stream)
		}
		err = s.Print(r, func(w io.Writer) error { return printAudit(w, r) })
		if n := len(r.Contradictions); n > 0 {
			err = errors.Join(err, fmt.Errorf("the audit found %s%s", cli.Counted(n, "contradiction"), advice(r.Contradictions)))
		}
		return errors.Join(err, unknownTags(r, tags))
	})
}

// wantsEvents reports whether a tag should have refill events. Strict tags have none.
func wantsEvents(t audit.TagAudit) bool { return t.End > 1 && t.Order != bus.OrderStrict }

// options reads the files. Mistakes in them are usage errors: status 1 is for contradictions.
func (f *auditFlags) options(cmd *cobra.Command, tags []string) (o audit.Options, err error) {
	for _, tag := range tags {
		if err := idspace.CheckTag(tag); err != nil {
			return o, err
		}
	}
	o.Tags = tags
	if f.taken != "" {
		only := ""
		if len(tags) == 1 {
			only = tags[0]
		}
		o.Taken = &audit.Taken{}
		err = readInput(cmd, f.taken, func(r io.Reader) error { return o.Taken.Read(r, only) })
		if err != nil {
			return o, fmt.Errorf("--taken: %w", err)
		}
	}
	return o, nil
}

// readInput calls read with a file, or with stdin if the name is "-". A signal ends it.
func readInput(cmd *cobra.Command, name string, read func(io.Reader) error) error {
	ended := make(chan error, 1)
	go func() { ended <- readFrom(cmd.InOrStdin(), name, read) }()
	select {
	case err := <-ended:
		if err != nil {
			return cli.Usagef("%w", err)
		}
		return nil
	case <-cmd.Context().Done():
		return errors.New("interrupted")
	}
}

func readFrom(stdin io.Reader, name string, read func(io.Reader) error) error {
	if name == "-" {
		return read(stdin)
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := read(file); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
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

// unknownTag is the error that a generator answers, for commands that ask none.
func unknownTag(tag string) error {
	return &bus.Error{Code: 404, Reason: bus.UnknownTag, Message: tag + ": unknown tag"}
}

// contradictionLine is a contradiction as one line.
func contradictionLine(c audit.Contradiction) string {
	about := string(c.Kind)
	if c.Tag != "" {
		about += " " + c.Tag
	}
	return cli.Safe(fmt.Sprintf("CONTRADICTION %s: %s", about, cmp.Or(c.Message, "no message")))
}
