package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/bus/embedded"
)

// defaultHTTP is where the HTTP face is unless an address is given.
const defaultHTTP = "127.0.0.1:8080"

// httpFlags are those of the HTTP face.
type httpFlags struct {
	addr, token     string
	tlsCert, tlsKey string // files
}

func (f *httpFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.addr, "http", defaultHTTP, "`ADDR` of the HTTP face: Leaf's API, dashboard, metrics, health; port 0 is any free one, empty is off")
	fs.StringVar(&f.token, "http-token", "", "`TOKEN` that callers of the HTTP face must show; beyond loopback it takes this or TLS")
	fs.StringVar(&f.tlsCert, "http-tlscert", "", "certificate `FILE` of the HTTP face")
	fs.StringVar(&f.tlsKey, "http-tlskey", "", "key `FILE` of that certificate")
	markSecret(fs, "http-token")
}

// check refuses values that cannot work, or would be open to the network.
func (f *httpFlags) check() error {
	if (f.tlsCert == "") != (f.tlsKey == "") {
		return usagef("--http-tlscert and --http-tlskey go together: give both")
	}
	if strings.ContainsFunc(f.token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return usagef("--http-token: no header can carry it: want ASCII without white space")
	}
	if f.addr == "" {
		return nil
	}
	if err := checkAddress(f.addr); err != nil {
		return usagef("--http %q: %w; empty turns it off", f.addr, err)
	}
	host, _, _ := net.SplitHostPort(f.addr)
	if f.token == "" && f.tlsCert == "" && !embedded.IsLoopback(host) {
		return usagef("--http %s would be open to the network: give callers a token (--http-token), or serve TLS (--http-tlscert, --http-tlskey)", f.addr)
	}
	return nil
}

// checkAddress refuses what is no address to listen at.
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

// listen opens the HTTP face, which nobody is answered on yet; nil: it is off.
func (f *httpFlags) listen() (net.Listener, *tls.Config, error) {
	if f.addr == "" {
		return nil, nil, nil
	}
	var secure *tls.Config
	if f.tlsCert != "" {
		cert, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
		if err != nil {
			return nil, nil, usagef("--http-tlscert, --http-tlskey: %w", err)
		}
		secure = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	}
	network := "tcp"
	if host, _, err := net.SplitHostPort(f.addr); err == nil && net.ParseIP(host).To4() != nil {
		network = "tcp4" // else 0.0.0.0 would be [::] too
	}
	listener, err := net.Listen(network, f.addr)
	if err != nil {
		return nil, nil, fmt.Errorf("--http: %w", err)
	}
	return listener, secure, nil
}
