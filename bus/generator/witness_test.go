package generator_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A generator with a data folder that names an installation says so before it has joined. One that hears it, or that
// hears no generator from one of its routes, creates no other installation. An operator can force that, but not beside
// a generator that runs as part of an installation.
func TestMayCreate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		witness, member bool
		routes, forced  bool
		say             []string // empty: it may create
	}{
		"alone":            {},
		"a witness":        {witness: true, say: []string{"waiting for the record of installation I", "old", "leaf restore"}},
		"a witness, force": {witness: true, forced: true},
		"a route":          {routes: true, say: []string{"no generator is heard from c:6222, d:6222:", "--new-installation"}},
		"a route, force":   {routes: true, forced: true},
		"a member, force":  {member: true, forced: true, say: []string{"old runs as part of it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			own := natskit.Connect(t, s).ConnectedServerId()
			waits := func(context.Context, func(context.Context) error) (generator.Identity, error) {
				return generator.Identity{}, allocator.ErrUnavailable
			}
			if c.witness || c.member {
				start(t, s, "old", memory(t), func(cfg *generator.Config) {
					cfg.Join, cfg.Witness = waits, "I"
					if c.member {
						cfg.Join = func(context.Context, func(context.Context) error) (generator.Identity, error) {
							return generator.Identity{Installation: "I"}, nil
						}
					}
				})
			}
			asked := make(chan error, 1)
			begin(t, s, "new", memory(t), func(cfg *generator.Config) {
				cfg.NewInstallation = c.forced
				if c.routes {
					cfg.Routes = func(context.Context) map[string]string {
						return map[string]string{"a:6222": own, "d:6222": "another server", "c:6222": ""}
					}
				}
				cfg.Join = func(ctx context.Context, mayCreate func(context.Context) error) (generator.Identity, error) {
					err := mayCreate(ctx)
					if ctx.Err() == nil {
						select {
						case asked <- err:
						default:
						}
					}
					return generator.Identity{}, allocator.ErrUnavailable
				}
			})
			var err error
			select {
			case err = <-asked:
			case <-time.After(testkit.Patience):
				t.Fatal("it does not ask")
			}
			if (err != nil) != (len(c.say) > 0) || err != nil && !errors.Is(err, allocator.ErrUnavailable) {
				t.Errorf("it may create one: %v", err)
			}
			for _, text := range c.say {
				if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(text)) {
					t.Errorf("it does not say %q: %v", text, err)
				}
			}
		})
	}
}
