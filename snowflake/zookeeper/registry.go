package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/snowflake"
)

// DefaultName is the name under which the workers are kept, if no other is given.
const DefaultName = "leaf"

const (
	rootFolder = "/leaf"
	// sessionTimeout is how long the name of a killed generator stays in use. Servers
	// do not allow less than two of their ticks.
	sessionTimeout = 6 * time.Second
	// readsAtOnce is how many nodes are read at a time.
	readsAtOnce = 256
)

// Config says where the records are.
type Config struct {
	Hosts string // host:port,host:port; the port is 2181 where there is none
	Name  string // [A-Za-z0-9_.-]{1,64}, and not only dots; default DefaultName
	// name of the generator: [A-Za-z0-9_.-]{1,64}, not only dots; empty: this is for administration, and adds no records
	Node string
	// Layout is the installation's, which the owner's record notes. Default: snowflake.DefaultLayout.
	Layout snowflake.Layout
	Port   string       // on which the generator can be reached; for people
	Log    *slog.Logger // default: slog.Default
}

// Registry keeps the records of workers in ZooKeeper. It implements
// [snowflake.Registry]; an error that matches [snowflake.ErrRefused] will stay
// until somebody does what it says. Nothing works before [Registry.Claim].
//
// Its methods may be called concurrently; they ask ZooKeeper one after the other.
type Registry struct {
	cfg                Config
	hosts              []string
	link               *link
	root, installation string // paths
	forever, temporary string

	// Guarded by link.busy.
	id      string         // of the ZooKeeper that was claimed
	checked int64          // the session that is known to lead there
	known   map[int64]node // as last read or written, by worker
	logged  map[string]int64
	own     nameNode // the temporary node that this generator made last
	other   namesake
	warned  string // the incarnation of the namesake that the log has reported
}

var _ snowflake.Registry = (*Registry)(nil)

// open lets everybody do everything: all who can reach ZooKeeper are trusted.
var open = zk.WorldACL(zk.PermAll)

var (
	errElsewhere = errors.New("this is not the ZooKeeper that the installation uses: was it restored, or does an " +
		"address lead elsewhere?")
	errUnclaimed = errors.New("it is not known yet which installation has its workers in ZooKeeper")
	nameForm     = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
)

// Validate returns an error if Hosts or Name are not what they should be.
func (c Config) Validate() error {
	if !nameForm.MatchString(c.Name) || strings.Trim(c.Name, ".") == "" {
		return fmt.Errorf("the name %q is not 1 to 64 characters of [A-Za-z0-9_.-]", c.Name)
	}
	_, err := parseHosts(c.Hosts)
	return err
}

// New returns a registry, which connects when it is first asked for something.
func New(cfg Config) (*Registry, error) {
	cfg.Name = cmp.Or(cfg.Name, DefaultName)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	cfg.Layout = cmp.Or(cfg.Layout, snowflake.DefaultLayout())
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	hosts, _ := parseHosts(cfg.Hosts) // which Validate did
	root := path.Join(rootFolder, cfg.Name)
	return &Registry{
		cfg: cfg, hosts: hosts, root: root,
		installation: root + "/installation", forever: root + "/leaf_forever", temporary: root + "/leaf_temporary",
		link:  newLink(hosts, sessionTimeout, cfg.Log),
		known: make(map[int64]node), logged: make(map[string]int64),
	}, nil
}

// Name says where the records are, for people and for the data folder.
func (r *Registry) Name() string { return strings.Join(r.hosts, ",") + r.root }

// Close ends the session, and waits for its goroutines, for a few seconds at most.
// Call it once, after everything else.
func (r *Registry) Close() { r.link.close() }

// List implements [snowflake.Registry].
func (r *Registry) List(ctx context.Context) ([]snowflake.Entry, error) {
	return ask(ctx, r.link, func(ctx context.Context) ([]snowflake.Entry, error) {
		all, err := r.read(ctx)
		if err != nil {
			return nil, err
		}
		var entries []snowflake.Entry
		for _, n := range all.nodes {
			e := n.Entry
			e.Rival = all.rivals[e.Worker]
			entries = append(entries, e)
		}
		slices.SortFunc(entries, func(x, y snowflake.Entry) int { return cmp.Compare(x.Worker, y.Worker) })
		return entries, nil
	})
}

// Add implements [snowflake.Registry].
func (r *Registry) Add(ctx context.Context, rec snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	return ask(ctx, r.link, func(ctx context.Context) (snowflake.Entry, error) { return r.add(ctx, rec, c) })
}

// Put implements [snowflake.Registry] with one versioned write, after a look at
// what it would replace: the versions of a node that was made again begin at 0.
func (r *Registry) Put(ctx context.Context, rec snowflake.Record, version uint64) (uint64, error) {
	return ask(ctx, r.link, func(ctx context.Context) (uint64, error) { return r.put(ctx, rec, version) })
}

// admit makes sure that the session leads to the ZooKeeper that was claimed.
func (r *Registry) admit() error {
	switch {
	case r.id == "":
		return errUnclaimed
	case r.link.conn.SessionID() == r.checked:
		return nil
	}
	have, session, err := r.readInstallation()
	if errors.Is(err, errNoOwner) || err == nil && have.ZooKeeper != r.id {
		return fmt.Errorf("%w (%s)", errElsewhere, r.Name())
	}
	if err == nil {
		r.checked = session
	}
	return err
}

// write does all of ops or none, and only in the ZooKeeper that was claimed.
// failed is the one that could not be done, if that is why.
func (r *Registry) write(ops ...any) (done []zk.MultiResponse, failed any, err error) {
	where := &zk.CheckVersionRequest{Path: r.installation + "/" + r.id, Version: -1}
	done, err = r.link.conn.Multi(append([]any{where}, ops...)...)
	if err == nil {
		return done[1:], nil, nil
	}
	for i, d := range done { // those after the one that failed have an error too
		switch {
		case d.Error == nil:
		case i == 0:
			return nil, nil, fmt.Errorf("%w (%s)", errElsewhere, r.Name())
		default:
			return nil, ops[i-1], d.Error
		}
	}
	return nil, nil, err
}

func (r *Registry) put(ctx context.Context, rec snowflake.Record, version uint64) (uint64, error) {
	conflict := fmt.Errorf("%w: worker %d", snowflake.ErrConflict, rec.Worker)
	if err := r.admit(); err != nil {
		return 0, err
	}
	known, ok := r.known[rec.Worker]
	if !ok || known.Version != version {
		all, err := r.read(ctx)
		if err != nil {
			return 0, err
		}
		known = all.nodes[rec.Worker]
	}
	if version == 0 || known.Version != version {
		return 0, conflict
	}
	where := r.forever + "/" + known.name
	text, stat, err := r.link.conn.Get(where)
	if errors.Is(err, zk.ErrNoNode) {
		return 0, conflict
	}
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", where, err)
	}
	now, err := decode(known.name, text, stat)
	if err != nil || now != known { // damaged, or changed by another generator
		return 0, conflict
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if text, err = r.encode(rec, now.base); err != nil {
		return 0, err
	}
	// Only the record decides: its holder extends it without the temporary node too.
	claim, made, nameErr := r.claimName(rec, now.Incarnation)
	if nameErr != nil && rec.Incarnation != now.Incarnation {
		return 0, nameErr
	}
	if nameErr != nil && r.warned != r.other.incarnation {
		r.warned = r.other.incarnation
		r.cfg.Log.Warn("this generator has no temporary node; it keeps its worker", "why", nameErr)
	}
	set := &zk.SetDataRequest{Path: where, Data: text, Version: now.version}
	done, failed, err := r.write(append([]any{set}, claim...)...)
	switch {
	case failed == set && (errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode)):
		return 0, conflict
	case err != nil:
		return 0, fmt.Errorf("writing %s (it may have happened): %w", where, err)
	}
	if nameErr == nil {
		r.own = made
	}
	now.Entry = snowflake.Entry{Record: rec, Version: uint64(done[0].Stat.Mzxid)}
	now.version = done[0].Stat.Version
	r.known[rec.Worker] = now
	return now.Version, nil
}
