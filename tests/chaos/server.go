package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/leafbus/leafbus/tests/kit"
)

// server is one of three NATS servers: a process of its own, or a part of a generator. Servers reach each other
// through links, one for each pair.
type server struct {
	*process
	i      int
	addr   string            // for those who look
	routes string            // where it listens for the other servers
	door   *kit.Link         // to addr, for callers
	pairs  map[int]*kit.Link // to the servers with a smaller number, which connect to none with a larger one
	data   string            // the folder of JetStream
}

// links are those that the server opens to others, and those that others open to it.
func (s *server) links() (out, in []*kit.Link) {
	in = append(in, s.door)
	for _, o := range s.w.servers {
		switch {
		case o.i < s.i:
			out = append(out, s.pairs[o.i])
		case o.i > s.i:
			in = append(in, o.pairs[s.i])
		}
	}
	for _, m := range s.w.machines {
		if len(m.nats) > 0 {
			in = append(in, m.nats[s.i])
		}
	}
	return out, in
}

// between is the link that joins two servers.
func (s *server) between(o *server) *kit.Link {
	if s.i > o.i {
		return s.pairs[o.i]
	}
	return o.pairs[s.i]
}

// writeConfig writes the nats-server configuration. Without a cluster the server is alone. No server learns the
// address of another one: the one that is advertised leads nowhere. Otherwise they would pass by the links.
func (s *server) writeConfig(cluster bool) string {
	var text strings.Builder
	fmt.Fprintf(&text, "server_name: s%d\nlisten: %q\nping_interval: 1s\nping_max: 2\n", s.i, s.addr)
	if cluster {
		routes := []string{"nats://" + s.routes} // its own, because JetStream demands one; it is ignored
		for j := range s.i {
			routes = append(routes, "nats://"+s.pairs[j].Addr())
		}
		fmt.Fprintf(&text, "cluster { name: chaos, listen: %q, advertise: %q, no_advertise: true, routes: [%s] }\n",
			s.routes, "127.0.0.1:1", strings.Join(routes, ", "))
	}
	if s.data != "" {
		fmt.Fprintf(&text, "jetstream { store_dir: %q, sync_interval: always, max_outstanding_catchup: 8MB }\n", s.data)
	}
	path := filepath.Join(s.folder, "nats.conf")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		s.w.Fatal(err)
	}
	return path
}

// newServers gives the servers their addresses and links, and starts none.
func (w *world) newServers(begins int) {
	for i := range 3 {
		s := &server{i: i, addr: w.address(), routes: w.address(), pairs: make(map[int]*kit.Link)}
		s.door = kit.NewLink(w, s.addr)
		for j := range i {
			s.pairs[j] = kit.NewLink(w, w.servers[j].routes)
		}
		w.servers = append(w.servers, s)
		if w.cfg.servers == "embedded" {
			continue
		}
		s.process = w.newProcess(fmt.Sprint("s", i))
		s.data = filepath.Join(s.folder, "jetstream")
		config := s.writeConfig(begins > 1 || i > 0)
		s.command = func() *exec.Cmd { return exec.Command(w.natsServer, "-c", config) }
	}
}
