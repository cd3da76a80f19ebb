package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/schema"
)

// States of a finding.
const (
	stateOK      = "ok"
	stateWarning = "warning"
	stateProblem = "problem" // an operator must do something
)

// finding is one line of leaf doctor.
type finding struct {
	Check string `json:"check"`
	State string `json:"state"`
	Found string `json:"found"`
	Fix   string `json:"fix,omitempty"` // what to do, if Found does not say it

	// For leaf doctor --wait. A finding without a State is for it alone.
	stops bool   // no machine may stop while it lasts
	never bool   // it is so by configuration, so waiting does not help
	what  string // Found without the names of streams
}

// diagnosis is what leaf doctor prints as JSON.
type diagnosis struct {
	State  string    `json:"state"` // the worst of the checks
	Checks []finding `json:"checks"`
}

// doctorFlags are the flags of leaf doctor. Those that leaf serve has too mean the same.
type doctorFlags struct {
	cli.Client
	mysql     databaseFlags
	zookeeper zookeeperFlags
	dataDir   string
	monitor   string
	wait      time.Duration
}

func newDoctorCmd() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong, and what to do",
		Long: `Say what is wrong with an installation, and what to do: what the generators find,
and what only the outside sees: NATS and JetStream, the rights of this NATS user, the
data folder, and, with their flags, MySQL and ZooKeeper. It prints one line for each
finding: problem, warning or ok, what was found, and what to do. The worst come first.

Give it the flags of leaf serve, and run it on the machine of the generator. It works
with and without running generators. It changes nothing: in the data
folder it writes and removes a file of 1 MiB, unless a generator uses the folder.
The exit status is 1 if there is a problem. Warnings alone do not change it.

Only the NATS server itself knows whether it syncs each write, and how much room it
has. With --nats-monitor leaf asks the monitoring address of a server that you joined.

With --wait it waits until any one machine may stop without an interruption, for
example before you restart it. It ends with exit status 0 when all of this has held
for 5s:
- each stream and bucket of Leafbus has a leader and at least three replicas, and all
  replicas are current;
- at least two generators can serve segments, and at least two snowflakes. For each of
  the two services they use different NATS servers;
- every generator that answers is ready.
While it waits it prints on stderr what is wrong. It fails with exit status 1, and says
what to do: at once if a stream has too few replicas, else after the time that you
give (default 5m).
docs/operate.md says what it cannot know.`,
		Example: `  leaf doctor
  leaf doctor -s nats://10.0.0.5:4222 --data-dir /var/lib/leaf --json
  leaf doctor --mysql-file leaf.dsn --zookeeper h1:2181,h2:2181,h3:2181
  leaf doctor --wait && ssh a systemctl restart leaf       machine a may stop
  leaf doctor --wait=30m -s nats://a:4222,nats://b:4222`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fs := cmd.Flags()
	f.mysql.register(fs, cli.GroupState,
		"also check this database of the tags, `DSN` user:password@tcp(host:3306)/database")
	f.zookeeper.register(fs)
	fs.StringVar(&f.dataDir, "data-dir", "leaf-data", "`DIR` of all local state of the generator")
	fs.StringVar(&f.monitor, "nats-monitor", "",
		"also ask the NATS server's monitoring address, `URL` such as http://10.0.0.5:8222")
	fs.DurationVar(&f.wait, "wait", 0, "wait until any one machine may stop, for at most this `TIME`: --wait=30m")
	fs.Lookup("wait").NoOptDefVal = waitDefault
	cli.Settings(fs, cli.GroupState, "data-dir")
	f.Register(cmd)
	f.OwnInboxes(fs)
	return cmd
}

func (f *doctorFlags) run(cmd *cobra.Command) error {
	if err := f.zookeeper.check(); err != nil {
		return err
	}
	d := doctor{doctorFlags: f}
	if cmd.Flags().Changed("wait") {
		return d.await(cmd)
	}
	if err := d.examineAll(cmd, true); err != nil {
		return err
	}
	return d.conclude(cmd)
}

// conclude prints what was found. It returns an error if there is a problem.
func (d *doctor) conclude(cmd *cobra.Command) error {
	if err := d.print(cmd.OutOrStdout()); err != nil {
		return err
	}
	if n := d.count(stateProblem); n > 0 {
		return fmt.Errorf("%s found; the lines above say what to do", cli.Counted(int64(n), "problem"))
	}
	return nil
}

// doctor is one run of leaf doctor.
type doctor struct {
	*doctorFlags
	nc     *nats.Conn // nil: NATS cannot be reached
	js     jetstream.JetStream
	client *admin.Client
	look   look                 // at generators and streams
	have   kvstore.Installation // its record; without an ID there is none, or it cannot be read
	// wantsSizes: the account demands that each stream has a limit of bytes.
	wantsSizes bool
	mayBeFirst bool // no generator need run

	mu       sync.Mutex
	findings []finding
}

// examineAll runs the checks. An error is one of usage: what is wrong elsewhere is a finding. Without joined there is
// no NATS yet, because the generator brings its own.
func (d *doctor) examineAll(cmd *cobra.Command, joined bool) error {
	db, err := d.mysql.store(schema.Config{Check: true, Log: d.logger("mysql")})
	if err != nil {
		return err
	}
	if db != nil {
		defer db.Close()
	}
	if joined {
		if err := d.connect(cmd); err != nil {
			return err
		}
	}
	if d.nc != nil {
		defer d.nc.Close()
		d.examineNATS(cmd.Context())
	}
	d.examine(cmd.Context(), "folder", d.folder)
	if db != nil {
		d.examineDatabase(cmd.Context(), db)
	}
	if d.zookeeper.hosts != "" {
		d.examine(cmd.Context(), "zookeeper", d.zooKeeper)
	}
	return nil
}

// examine runs one check. It returns what is well, or why something must be done. What it logs as a warning or an
// error is a finding too; the attribute fix says what to do.
func (d *doctor) examine(ctx context.Context, name string, check func(context.Context, *slog.Logger) (string, error)) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	before := len(d.all())
	found, err := check(ctx, d.logger(name))
	advised, _ := errors.AsType[*advisedError](err)
	switch {
	case advised != nil:
		d.add(finding{Check: name, State: stateProblem, Found: advised.Error(), Fix: advised.fix})
	case err != nil:
		d.add(finding{Check: name, State: stateProblem, Found: err.Error(), Fix: remedy(name, err)})
	case len(d.all()) == before && found != "":
		d.add(finding{Check: name, State: stateOK, Found: found})
	}
}

// remedy returns what to do about an error that says only that something does not answer; "": the error says it.
func remedy(check string, err error) string {
	_, network := errors.AsType[net.Error](err)
	if silent := func(silence error) bool { return errors.Is(err, silence) }; network ||
		slices.ContainsFunc([]error{context.DeadlineExceeded, allocator.ErrUnavailable, nats.ErrTimeout}, silent) {
		return remedies[check]
	}
	return ""
}

// remedies say what to do if what a check needs does not answer.
var remedies = map[string]string{
	"nats":         "see that a NATS server runs there, and that no firewall is between",
	"installation": "run leaf doctor as the user of the generators, or give a larger --timeout",
	"records":      "see that JetStream and the database answer, or give a larger --timeout",
	"mysql": "see that the database runs there, that no firewall is between, and that the address and the password are " +
		"right",
	"zookeeper": "see that more than half of its servers run, that no firewall is between, and that the addresses are " +
		"right",
}

// advisedError is an error with what to do about it.
type advisedError struct {
	error
	fix string
}

func advise(fix, format string, a ...any) error { return &advisedError{fmt.Errorf(format, a...), fix} }

func (d *doctor) add(found ...finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.findings = append(d.findings, found...)
}

// all returns what was found so far. Clients may still log, and so add to it.
func (d *doctor) all() []finding {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.findings)
}

func (d *doctor) count(state string) (n int) {
	for _, f := range d.all() {
		if f.State == state {
			n++
		}
	}
	return n
}

// print writes the findings, the worst first.
func (d *doctor) print(w io.Writer) error {
	order := []string{stateProblem, stateWarning, stateOK}
	found := d.all()
	slices.SortStableFunc(found, func(x, y finding) int {
		return cmp.Compare(slices.Index(order, x.State), slices.Index(order, y.State))
	})
	if d.JSON {
		worst := stateOK
		if len(found) > 0 {
			worst = found[0].State
		}
		return cli.PrintJSON(w, diagnosis{worst, found})
	}
	for _, f := range found {
		line := f.Found
		if f.Fix != "" {
			line += ". Fix: " + f.Fix
		}
		state := fmt.Sprintf("%-8s", f.State)
		if cli.Colourful(w) {
			state = cli.Colour(state, map[string]string{stateOK: cli.Green, stateWarning: cli.Yellow,
				stateProblem: cli.Red}[f.State])
		}
		if _, err := fmt.Fprintf(w, "%s %-20s %s\n", state, f.Check, cli.Safe(line)); err != nil {
			return err
		}
	}
	return nil
}

// logger returns a log of which warnings and errors are findings of a check: the checks that leaf serve makes at its
// start log what they find.
func (d *doctor) logger(check string) *slog.Logger { return slog.New(findingLog{d: d, check: check}) }

// findingLog is the handler of that log.
type findingLog struct {
	d     *doctor
	check string
	attrs []slog.Attr
}

// Enabled implements [slog.Handler].
func (findingLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (h findingLog) Handle(_ context.Context, r slog.Record) error {
	f := finding{Check: h.check, State: stateWarning}
	if r.Level >= slog.LevelError {
		f.State = stateProblem
	}
	var details []string
	note := func(a slog.Attr) bool {
		if a.Key == "fix" {
			f.Fix = a.Value.String()
		} else {
			details = append(details, fmt.Sprintf("%s %v", a.Key, a.Value))
		}
		return true
	}
	for _, a := range h.attrs {
		note(a)
	}
	r.Attrs(note)
	f.Found = r.Message
	if len(details) > 0 {
		f.Found += " (" + strings.Join(details, ", ") + ")"
	}
	h.d.add(f)
	return nil
}

// WithAttrs implements [slog.Handler].
func (h findingLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)
	return h
}

// WithGroup implements [slog.Handler]. No check groups attributes.
func (h findingLog) WithGroup(string) slog.Handler { return h }

// connect connects to NATS. A NATS that cannot be reached is a finding.
func (d *doctor) connect(cmd *cobra.Command) error {
	nc, err := d.Connect(cmd)
	if _, ok := errors.AsType[cli.UsageError](err); ok {
		return err
	}
	if err != nil {
		d.add(finding{Check: "nats", State: stateProblem, Found: err.Error(), Fix: remedy("nats", err)})
		return nil
	}
	js, err := d.JetStream(nc)
	if err != nil {
		nc.Close()
		return err
	}
	d.nc, d.js, d.client = nc, js, admin.NewClient(nc, admin.Timeout(d.Timeout))
	return nil
}
