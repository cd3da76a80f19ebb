package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/pflag"
)

// httpFlags are those of the HTTP face.
type httpFlags struct {
	addr, token     string
	tlsCert, tlsKey string // files
}

func (f *httpFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.addr, "http", "127.0.0.1:8080", "`ADDR` of the HTTP face: Leaf's API, dashboard, metrics, health; port 0 is any free one, empty is off")
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
	if f.addr == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(f.addr)
	if err != nil {
		return usagef("--http %q: want HOST:PORT, or nothing to turn it off", f.addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return usagef("--http %q: a port is from 0, any free one, to 65535", f.addr)
	}
	if f.token == "" && f.tlsCert == "" && !isLoopback(host) {
		return usagef("--http %s would be open to the network: give callers a token (--http-token), or serve TLS (--http-tlscert, --http-tlskey)", f.addr)
	}
	return nil
}

// isLoopback reports whether only this machine reaches a host.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
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
	listener, err := net.Listen("tcp", f.addr)
	if err != nil {
		return nil, nil, fmt.Errorf("--http: %w", err)
	}
	return listener, secure, nil
}
