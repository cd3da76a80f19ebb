package zookeeper

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const defaultPort = "2181"

// parseHosts reads host[:port],host[:port].
func parseHosts(list string) ([]string, error) {
	var hosts []string
	for _, text := range strings.Split(list, ",") {
		text = strings.TrimSpace(text)
		if strings.Contains(text, "/") {
			return nil, fmt.Errorf("%q: give host:port,host:port, without a path", text)
		}
		host, port, err := net.SplitHostPort(text)
		if err != nil { // it has no port, or is no address, which is found below
			host, port = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), defaultPort
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("%q: the port is not a number from 1 to 65535", text)
		}
		if host == "" || strings.ContainsAny(host, " \t@=?") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return nil, fmt.Errorf("%q: want host:port,host:port", text)
		}
		hosts = append(hosts, net.JoinHostPort(host, port))
	}
	return hosts, nil
}

// hosts gives the client its servers by name, in turn. The library's own provider
// resolves the names once, at the start, and fails if one of them is not known then. Here
// each dial resolves its own name. The clients of a link share the hosts, so that the next
// client does not begin with the server that the last one hung on.
type hosts struct {
	mu    sync.Mutex
	names []string
	next  int
	tried int // since the last success
}

// Init implements zk.HostProvider.
func (h *hosts) Init(names []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.names == nil { // else a client before this one has done it
		h.names = slices.Clone(names)
		rand.Shuffle(len(h.names), func(i, j int) { h.names[i], h.names[j] = h.names[j], h.names[i] })
	}
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.names)
}

// Next implements zk.HostProvider.
func (h *hosts) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.names[h.next%len(h.names)]
	h.next++
	h.tried++
	return server, h.tried > len(h.names)
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = 0
}
