package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// The doctor warns if all generators use one server of a cluster. A server that is in none has no other.
func TestDoctorOfOneServer(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	route := testkit.FreeAddress(t)
	if err := os.WriteFile(conf, fmt.Appendf(nil, "server_name: n, cluster { name: c, listen: %q, routes: [nats://%s] }", route, route), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(server string) admin.State { return admin.State{Node: "at " + server, Server: server} }
	for name, c := range map[string]struct {
		config embedded.Config
		nodes  []admin.State
		want   string
	}{
		"a cluster":    {embedded.Config{ConfigFile: conf}, []admin.State{at("n"), at("n")}, stateWarning},
		"two servers":  {embedded.Config{ConfigFile: conf}, []admin.State{at("n"), at("m")}, stateOK},
		"no cluster":   {embedded.Config{}, []admin.State{at("n"), at("n")}, stateOK},
		"no other one": {embedded.Config{ConfigFile: conf}, []admin.State{at("n")}, stateOK},
	} {
		s := natskit.StartWith(t, c.config)
		d := doctor{doctorFlags: &doctorFlags{Client: cli.Client{Conn: cli.Conn{Timeout: testkit.Patience}}}, nc: natskit.Connect(t, s), look: look{nodes: c.nodes}}
		d.examine(t.Context(), "generators", d.generators)
		if found := d.all(); len(found) != 1 || found[0].State != c.want || (c.want == stateWarning) != strings.Contains(found[0].Found, "use the NATS server n") {
			t.Errorf("%s: %+v, want %s", name, found, c.want)
		}
		s.Close()
	}
}
