package main

import (
	"errors"
	"net"
	"strconv"
)

// The default addresses of a generator.
const (
	defaultListen = "127.0.0.1:4222" // of the embedded NATS server
	defaultHTTP   = "127.0.0.1:8080"
)

// checkAddress returns an error if addr is not an address to listen at.
func checkAddress(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New("want HOST:PORT")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("want HOST:PORT, the port from 0, any free one, to 65535")
	}
	return nil
}

// reachable is how this machine reaches a listener at the address.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}
