package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
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
	// sessionTimeout is how long the temporary node of a killed generator stays. Servers do not
	// allow less than two of their ticks.
	sessionTimeout = 6 * time.Second
	// readsAtOnce is how many nodes are read at a time.
	readsAtOnce = 256
)

// Config says where the records are.
type Config struct {
	Hosts string // host:port,host:port; the port is 2181 where there is none
	Name  string // [A-Za-z0-9_.-]{1,64}, and not only dots; default DefaultName
	// name of the generator: [A-Za-z0-9_.-]{1,64}, not only dots; empty: this is for
	// administration, and adds no records
	Node string
	// Layout is the installation's, which the owner's record notes. Default:
	// snowflake.DefaultLayout.
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
	link               *link
	root, installation string // paths
	forever, temporary string

	// Guarded by link.busy.
	id    string         // of the ZooKeeper that was claimed
	known map[int64]node // as last read or written, by worker
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
		cfg: cfg, root: root,
		installation: root + "/installation", forever: root + "/leaf_forever", temporary: root + "/leaf_temporary",
		link: newLink(hosts, sessionTimeout, cfg.Log),
	}, nil
}

// Name says where the records are, for people and for the data folder.
func (r *Registry) Name() string { return strings.Join(r.link.hosts, ",") + r.root }

// Close ends the session, and waits for its goroutines, for a few seconds at most.
// Call it once, after everything else.
func (r *Registry) Close() { r.link.close() }

// List implements [snowflake.Registry].
func (r *Registry) List(ctx context.Context) ([]snowflake.Entry, error) {
	return ask(ctx, r.link, func(ctx context.Context, c *client) ([]snowflake.Entry, error) {
		all, err := r.read(ctx, c)
		if err != nil {
			return nil, err
		}
		var entries []snowflake.Entry
		for _, worker := range slices.Sorted(maps.Keys(all.nodes)) {
			entries = append(entries, all.nodes[worker].Entry)
		}
		return entries, nil
	})
}

// Add implements [snowflake.Registry].
func (r *Registry) Add(ctx context.Context, rec snowflake.Record, choice snowflake.Choice) (snowflake.Entry, error) {
	return ask(ctx, r.link, func(ctx context.Context, c *client) (snowflake.Entry, error) {
		for {
			e, err := r.add(ctx, c, rec, choice)
			if !errors.Is(err, zk.ErrBadVersion) { // else another generator made a node meanwhile
				return e, err
			}
		}
	})
}

// Put implements [snowflake.Registry] with one versioned write, after a look at
// what it would replace: the versions of a node that was made again begin at 0.
func (r *Registry) Put(ctx context.Context, rec snowflake.Record, version uint64) (uint64, error) {
	return ask(ctx, r.link, func(ctx context.Context, c *client) (uint64, error) { return r.put(ctx, c, rec, version) })
}

// admit makes sure that the client leads to the ZooKeeper that was claimed.
func (r *Registry) admit(c *client) error {
	if r.id == "" {
		return errUnclaimed
	}
	if c.admitted {
		return nil
	}
	have, err := r.readInstallation(c)
	if errors.Is(err, errNoOwner) || err == nil && have.ZooKeeper != r.id {
		return fmt.Errorf("%w (%s)", errElsewhere, r.Name())
	}
	c.admitted = err == nil
	return err
}

// write does all of ops or none, and only in the ZooKeeper that was claimed. Its error is that of
// the first one that could not be done, if that is why.
func (r *Registry) write(c *client, ops ...any) ([]zk.MultiResponse, error) {
	where := &zk.CheckVersionRequest{Path: r.installation + "/" + r.id, Version: -1}
	done, err := c.conn.Multi(append([]any{where}, ops...)...)
	if err == nil {
		return done[1:], nil
	}
	for i, d := range done { // those after the one that failed have an error too
		if d.Error != nil && i == 0 {
			return nil, fmt.Errorf("%w (%s)", errElsewhere, r.Name())
		}
		if d.Error != nil {
			return nil, d.Error
		}
	}
	return nil, err
}

// lease makes the temporary node of a generator, once in a session. It is for people. After an
// error the next report tries again: the node of an earlier session may still be there.
func (r *Registry) lease(c *client, rec snowflake.Record) {
	if c.leased || rec.Node != r.cfg.Node {
		return
	}
	_ = r.make(c, r.temporary)
	host, _ := os.Hostname()
	text := fmt.Sprintf("process %d on %s (%s), since %s", os.Getpid(), host, c.local(), time.Now().Format(time.RFC3339))
	_, err := c.conn.Create(r.temporary+"/"+r.cfg.Node, []byte(text), zk.FlagEphemeral, open)
	c.leased = err == nil
}
