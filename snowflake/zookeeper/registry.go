package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/snowflake"
)

// DefaultName is the name under which the workers are kept, if no other is given.
const DefaultName = "leaf"

const (
	rootFolder = "/leaf"
	// sessionTimeout is how long after its death a generator's name may still be
	// in use. Servers do not allow less than two of their ticks.
	sessionTimeout = 6 * time.Second
	// atOnce is how many nodes are read at a time.
	atOnce = 256
)

// Config says where the records are.
type Config struct {
	Hosts string // host:port,host:port; the port is 2181 where there is none
	Name  string // [A-Za-z0-9_.-]{1,64}, and not only dots; default DefaultName
	Node  string // name of the generator: [A-Za-z0-9_]{1,64}; empty: this is for administration, and adds no records
	Port  string // on which the generator can be reached; for people
	Log   *slog.Logger
}

// Registry keeps the records of workers in ZooKeeper. It implements
// [snowflake.Registry]; an error that matches [snowflake.ErrRefused] will stay
// until somebody does what it says. Nothing works before [Registry.Claim].
//
// What its methods ask of ZooKeeper is asked one after the other.
type Registry struct {
	cfg                Config
	hosts              []string
	link               *link
	root, installation string // paths
	forever, temporary string

	// Of the one who asks.
	id      string         // of the ZooKeeper that was claimed
	checked int64          // the session that is known to lead there
	known   map[int64]node // as last read or written, by worker
	logged  map[string]int64
	lease   lease
	rival   rival
	told    string // the incarnation of the rival that the log tells of
}

var _ snowflake.Registry = (*Registry)(nil)

// open lets everybody do everything: who can reach ZooKeeper is trusted.
var open = zk.WorldACL(zk.PermAll)

var (
	errElsewhere = errors.New("this is not the ZooKeeper that the installation uses: was it restored, or does an address lead elsewhere?")
	errUnclaimed = errors.New("it is not known yet whose the workers in ZooKeeper are")
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
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	hosts, err := parseHosts(cfg.Hosts)
	if err != nil {
		return nil, err
	}
	root := path.Join(rootFolder, cfg.Name)
	r := &Registry{
		cfg: cfg, hosts: hosts, root: root,
		installation: root + "/installation", forever: root + "/leaf_forever", temporary: root + "/leaf_temporary",
		link:  newLink(hosts, sessionTimeout, cfg.Log),
		known: make(map[int64]node), logged: make(map[string]int64),
	}
	return r, nil
}

// Name names the place of the records, for people and for the data folder.
func (r *Registry) Name() string { return strings.Join(r.hosts, ",") + r.root }

// Close ends the session. Call it once, after everything else.
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
			entries = append(entries, n.Entry)
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
// what it would replace: a node that was made anew counts its versions again.
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
	if errors.Is(err, ErrNobodys) || err == nil && have.ZooKeeper != r.id {
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

// records are what ZooKeeper has.
type records struct {
	nodes map[int64]node // by worker
	// made is how many nodes were ever made in the folder: the sequence number
	// of the next.
	made    int64
	damaged []string // names of nodes that cannot be read
}

// read reads all records. Of two nodes of one worker the older counts: whoever
// made the other saw that, and uses it not.
func (r *Registry) read(ctx context.Context) (all records, err error) {
	if err := r.admit(); err != nil {
		return all, err
	}
	conn := r.link.conn
	if _, err := conn.Sync(r.forever); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return all, fmt.Errorf("reading %s: %w", r.forever, err)
	}
	names, folder, err := conn.Children(r.forever)
	if errors.Is(err, zk.ErrNoNode) {
		names, folder, err = nil, &zk.Stat{}, nil
	}
	if err != nil {
		return all, fmt.Errorf("reading %s: %w", r.forever, err)
	}
	all.made = (int64(folder.Cversion) + int64(folder.NumChildren)) / 2 // it counts what was made and what was deleted
	all.nodes = make(map[int64]node)
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, name := range names {
		if _, ok := number(name); !ok {
			mu.Lock()
			r.strange(name, 0, "it is no worker's record; nothing else may be made there, as each child takes a number")
			mu.Unlock()
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			text, stat, readErr := conn.Get(r.forever + "/" + name)
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(readErr, zk.ErrNoNode) {
				return // deleted meanwhile
			}
			if readErr != nil {
				err = fmt.Errorf("reading %s/%s: %w", r.forever, name, readErr)
				return
			}
			n, bad := decode(name, text, stat)
			if bad != nil {
				all.damaged = append(all.damaged, name)
				r.strange(name, stat.Mzxid, "it is damaged: no worker is added until it is deleted, when its holder is stopped: "+bad.Error())
				return
			}
			if other, ok := all.nodes[n.Worker]; !ok || n.created < other.created {
				all.nodes[n.Worker] = n
			}
		})
	}
	wg.Wait()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && conn.SessionID() != r.checked { // some of it may be another ZooKeeper's
		err = errors.New("the session with ZooKeeper ended meanwhile")
	}
	if err != nil {
		return all, err
	}
	r.known = all.nodes
	return all, nil
}

// strange logs something that should not be in the folder, once.
func (r *Registry) strange(name string, version int64, why string) {
	if had, ok := r.logged[name]; ok && had == version {
		return
	}
	r.logged[name] = version
	r.cfg.Log.Error("a node in ZooKeeper is not as it should be", "node", r.forever+"/"+name, "why", why)
}

// add makes a node, and keeps it if the worker that its number makes is free.
func (r *Registry) add(ctx context.Context, rec snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	next := int64(0) // sequence number, if nobody else makes a node
	for {
		all, err := r.read(ctx)
		if err != nil {
			return snowflake.Entry{}, err
		}
		if len(all.damaged) > 0 {
			return snowflake.Entry{}, fmt.Errorf("nobody knows whose worker the damaged node %s/%s is: delete it when its holder is stopped", r.forever, all.damaged[0])
		}
		next = max(next, all.made)
		worker, ok := all.free(c, next)
		if !ok {
			return snowflake.Entry{}, fmt.Errorf("%w: of %d to %d none is free", snowflake.ErrFull, c.First, c.Last)
		}
		name, err := r.create(rec, worker-next)
		if err != nil {
			return snowflake.Entry{}, err
		}
		if all, err = r.read(ctx); err != nil {
			return snowflake.Entry{}, fmt.Errorf("a worker's node was made, and could not be read (the next try finds it): %w", err)
		}
		for _, n := range all.nodes {
			// After a long sleep somebody else may have taken it over.
			if n.name == name && n.Incarnation == rec.Incarnation && c.Allows(n.Worker) && len(all.damaged) == 0 {
				return n.Entry, nil
			}
		}
		// Others made nodes meanwhile, and this one's number makes another worker.
		_, _, err = r.write(&zk.DeleteRequest{Path: r.forever + "/" + name, Version: 0})
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return snowflake.Entry{}, fmt.Errorf("deleting %s, whose worker is another's: %w", name, err)
		}
		last, _ := number(name)
		next = last + 1
	}
}

// free returns a worker of the choice that has no record: that which the number
// of the next node makes as usual, or a random one.
func (all records) free(c snowflake.Choice, next int64) (worker int64, ok bool) {
	isFree := func(worker int64) bool {
		_, taken := all.nodes[worker]
		return !taken && c.Allows(worker)
	}
	if worker := c.First + next; isFree(worker) {
		return worker, true
	}
	n := c.Last - c.First + 1
	for i, start := int64(0), rand.Int64N(max(1, n)); i < n; i++ {
		if worker := c.First + (start+i)%n; isFree(worker) {
			return worker, true
		}
	}
	return 0, false
}

// create makes a record's node, and the temporary one with it.
func (r *Registry) create(rec snowflake.Record, base int64) (name string, err error) {
	for _, folder := range []string{r.forever, r.temporary} {
		if err := r.makeHere(folder); err != nil {
			return "", err
		}
	}
	text, err := r.encode(rec, base)
	if err != nil {
		return "", err
	}
	hold, made, err := r.hold(rec, "")
	if err != nil {
		return "", err
	}
	ops := append([]any{&zk.CreateRequest{
		Path: r.forever + "/" + r.cfg.Node + "-", Data: text, Acl: open, Flags: zk.FlagSequence,
	}}, hold...)
	done, _, err := r.write(ops...)
	if err != nil {
		return "", fmt.Errorf("making a node in %s (it may have happened): %w", r.forever, err)
	}
	r.lease = made
	return path.Base(done[0].String), nil
}

// makeHere makes a folder, if it is not there.
func (r *Registry) makeHere(folder string) error {
	there, _, err := r.link.conn.Exists(folder)
	if err == nil && !there {
		_, _, err = r.write(&zk.CreateRequest{Path: folder, Acl: open})
	}
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("making %s in ZooKeeper: %w", folder, err)
	}
	return nil
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
	if err != nil || now != known { // damaged, or another's
		return 0, conflict
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if text, err = r.encode(rec, now.base); err != nil {
		return 0, err
	}
	// The record is what counts: its holder extends it without the temporary node too.
	hold, made, rivalErr := r.hold(rec, now.Incarnation)
	if rivalErr != nil && rec.Incarnation != now.Incarnation {
		return 0, rivalErr
	}
	if rivalErr != nil && r.told != r.rival.incarnation {
		r.told = r.rival.incarnation
		r.cfg.Log.Warn("there is no temporary node of this generator; its worker stays", "why", rivalErr)
	}
	set := &zk.SetDataRequest{Path: where, Data: text, Version: now.version}
	done, failed, err := r.write(append([]any{set}, hold...)...)
	switch {
	case failed == set && (errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode)):
		return 0, conflict
	case err != nil:
		return 0, fmt.Errorf("writing %s (it may have happened): %w", where, err)
	}
	if rivalErr == nil {
		r.lease = made
	}
	now.Entry = snowflake.Entry{Record: rec, Version: uint64(done[0].Stat.Mzxid)}
	now.version = done[0].Stat.Version
	r.known[rec.Worker] = now
	return now.Version, nil
}
