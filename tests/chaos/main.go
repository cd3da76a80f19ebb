// Chaos runs a whole installation of real processes under load, and lets faults strike it: a seed chooses which, where
// and when. No promise may break. The first that does ends the run, which prints what happened around it.
//
//	go run ./tests/chaos -for 5m
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/chaos/judge"
	"github.com/leafbus/leafbus/tests/chaos/programs"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

func main() {
	cfg, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	var status int
	switch {
	case cfg.known:
		status = runKnown(ctx, cfg)
	case cfg.broken != "":
		status = runBroken(ctx, cfg)
	default:
		status = run(ctx, cfg)
	}
	if err := kit.Close(); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
		status = max(status, 2)
	}
	if ctx.Err() != nil {
		status = 130
	}
	os.Exit(status)
}

const usage = `Chaos runs an installation of Leafbus with real processes, and lets faults strike it under load.
A seed chooses which faults, where and when. The first broken promise ends the run: exit status 1.

Usage:
  go run ./tests/chaos [flags]

Examples:
  go run ./tests/chaos -for 5m
  go run ./tests/chaos -for 1h -store mysql -servers joined
  go run ./tests/chaos -seed 7 -faults kill,freeze
  go run ./tests/chaos -broken all
  go run ./tests/chaos -list

Flags:
`

func parse(args []string) (cfg config, err error) {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	flags.Uint64Var(&cfg.seed, "seed", 0, "`number` that decides about the faults (default a random one)")
	flags.DurationVar(&cfg.length, "for", 5*time.Minute, "how long faults strike; then comes the final check")
	only := flags.String("faults", "", "`names` of the only faults that strike, with commas; -list shows them")
	flags.StringVar(&cfg.store, "store", "jetstream", "where tags and workers are: jetstream, or mysql (and ZooKeeper)")
	flags.StringVar(&cfg.servers, "servers", "embedded", "NATS servers: embedded in generators, or joined")
	flags.BoolVar(&cfg.known, "known", false, "run each fault that is known to break a promise, alone")
	flags.StringVar(&cfg.broken, "broken", "", "`name` of a breakage that must be found, or all; -list shows them")
	flags.StringVar(&cfg.json, "json", "", "`file` for the table and the violation as JSON")
	flags.BoolVar(&cfg.keep, "keep", false, "keep the folders and logs of all processes, and say where they are")
	list := flags.Bool("list", false, "list the faults")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	if *list {
		printFaults(os.Stdout)
		return cfg, flag.ErrHelp
	}
	if flags.NArg() > 0 {
		return cfg, fmt.Errorf("%q is no flag: see -help", flags.Arg(0))
	}
	if !slices.Contains([]string{"jetstream", "mysql"}, cfg.store) {
		return cfg, fmt.Errorf("-store is jetstream or mysql, not %q", cfg.store)
	}
	if !slices.Contains([]string{"embedded", "joined"}, cfg.servers) {
		return cfg, fmt.Errorf("-servers is embedded or joined, not %q", cfg.servers)
	}
	isNamed := func(b breakage) bool { return b.name == cfg.broken }
	if cfg.broken != "" && cfg.broken != "all" && !slices.ContainsFunc(breakages, isNamed) {
		return cfg, fmt.Errorf("-broken: there is no breakage %q: -list shows all", cfg.broken)
	}
	if cfg.seed == 0 {
		cfg.seed = rand.Uint64N(1_000_000) + 1
	}
	if *only != "" {
		cfg.faults = strings.Split(*only, ",")
	}
	_, err = cfg.chosen()
	return cfg, err
}

// chosen are the faults that may strike.
func (cfg config) chosen() (from []*fault, err error) {
	for _, name := range cfg.faults {
		if !slices.ContainsFunc(faults, func(f *fault) bool { return f.name == name }) {
			return nil, fmt.Errorf("-faults: there is no fault %q: -list shows all", name)
		}
	}
	for _, f := range faults {
		if f.store != "" && f.store != cfg.store || f.servers != "" && f.servers != cfg.servers {
			continue
		}
		if slices.Contains(cfg.faults, f.name) || len(cfg.faults) == 0 && f.weight > 0 && !cfg.isKnown(f.name) {
			from = append(from, f)
		}
	}
	if len(from) == 0 {
		return nil, fmt.Errorf("none of these faults can strike with -store %s -servers %s", cfg.store, cfg.servers)
	}
	return from, nil
}

// command is how this run is repeated.
func (cfg config) command() string {
	text := fmt.Sprintf("go run ./tests/chaos -seed %d -for %v -store %s -servers %s",
		cfg.seed, cfg.length, cfg.store, cfg.servers)
	if len(cfg.faults) > 0 {
		text += " -faults " + strings.Join(cfg.faults, ",")
	}
	if cfg.broken != "" {
		text += " -broken " + cfg.broken
	}
	return text
}

// run returns the exit status.
func run(ctx context.Context, cfg config) (status int) {
	w := play(ctx, cfg)
	w.print(os.Stdout)
	switch {
	case errors.Is(w.err, errViolated):
		w.explain(os.Stdout)
		status = 1
	case w.err != nil:
		fmt.Fprintf(os.Stderr, "chaos: %v\n", w.err)
		status = 2
	default:
		fmt.Printf("\nNo promise broke in %v, seed %d\n", w.lasted.Round(time.Second), cfg.seed)
	}
	if cfg.json != "" {
		if err := w.write(cfg.json); err != nil {
			fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
			status = 2
		}
	}
	if err := w.tidy(cfg.keep || status == 1 || status == 2 && ctx.Err() == nil); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
		status = 2
	}
	return status
}

// play runs an installation until the final check, the first violation or the end of ctx. No process is left after it.
func play(ctx context.Context, cfg config) *world {
	dir, err := os.MkdirTemp("", "leaf-chaos-")
	h := newHarness(dir)
	w := &world{
		harness: h, cfg: cfg, progress: os.Stderr, judge: judge.New(), busy: make(map[*process]bool), began: time.Now(),
		samples: make(samples), numbers: make(map[bus.ID]bus.ID),
	}
	if err != nil {
		w.err = err
		return w
	}
	stop := context.AfterFunc(ctx, func() { h.fail(errors.New("interrupted")) })
	defer stop()
	fmt.Fprintln(w.progress, cfg.command())
	var whole sync.WaitGroup
	whole.Go(w.live) // it may end by Fatal
	whole.Wait()
	w.err, w.lasted = context.Cause(h.ctx), time.Since(w.began)
	h.fail(nil)
	h.close()
	return w
}

// tidy removes the folder of a run. Or it keeps it, with all that the runner did and saw.
func (w *world) tidy(keep bool) error {
	if !keep {
		return os.RemoveAll(w.dir)
	}
	w.writeNotes(filepath.Join(w.dir, "notes"))
	fmt.Fprintf(os.Stderr, "all folders and logs are in %s, and what happened is in its file notes\n", w.dir)
	return nil
}

// live is the run from its first process to the final check.
func (w *world) live() {
	from, err := w.cfg.chosen()
	if err != nil {
		w.Fatal(err)
	}
	w.leaf, err = programs.Build(w.ctx, w.dir, w.cfg.edits...)
	if err == nil && w.cfg.servers == "joined" {
		w.natsServer, err = programs.BuildNATS(w.ctx, w.dir)
	}
	if err != nil {
		w.Fatal(err)
	}
	first := machines
	for _, f := range from {
		if f.begins > 0 {
			first = f.begins
		}
	}
	w.begin(first)
	w.watch, w.episodes = w.look(), newEpisodes()
	go w.episodes.follow(w)
	w.crowd = &crowd{w: w, sets: make(map[string]*harness)}
	for _, args := range [][]string{
		{"tag", "add", invoice, "--order", "strict"}, {"tag", "add", coupon, "--opaque=53", "--step", "100"},
	} {
		if r := w.operator(args...); r.Status != 0 {
			w.violated("ready", "", fmt.Sprintf("all is ready, and leaf %v fails: %s", args, r.Stderr))
		}
	}
	w.judge.Opaque(coupon, 1<<53-1)
	for _, tag := range []string{order, stock, invoice, coupon, callers.Snowflakes} {
		w.crowd.add(tag, tag == invoice)
	}
	go w.judging()
	w.pause(3 * time.Second)
	w.began = time.Now()
	w.inspected = w.began
	for n := 1; time.Since(w.began) < w.cfg.length; n++ {
		r := w.plan(n, from)
		if len(r) == 0 {
			break
		}
		r.run(w, n)
		if w.ctx.Err() != nil {
			return
		}
		if time.Since(w.inspected) > inspectEvery {
			w.inspect()
		}
	}
	w.inspect()
	w.crowd.end()
	w.pause(time.Second)
	w.calm() // its own requests are judged, too
	if v := w.judge.Check(time.Now().Add(time.Hour)); v != nil {
		w.report(v)
	}
	w.audit()
	w.crashes()
}
