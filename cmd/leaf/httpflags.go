package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"

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
	if strings.ContainsFunc(f.token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return usagef("--http-token: no header can carry it: want ASCII without white space")
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

// httpAdvice is for whoever finds the address of the HTTP face in use: the same command, with
// another address. What is secret in it is left out.
func httpAdvice(fs *pflag.FlagSet) string {
	command := "  leaf serve"
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Changed || f.Annotations[noteSource] != nil || f.Name == "http" { // or it is not on the command line
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			if isSecret(f) && (f.Name != "server" || strings.Contains(value, "@")) {
				value = "..."
			}
			command += " --" + f.Name + "=" + quoted(value)
		}
	})
	return "Serve HTTP elsewhere, here at any free port:\n" + command + " --http=127.0.0.1:0\nor not at all:\n" + command + " --http=''"
}

// quoted is a word of a shell's command.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("_-./:=,@", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
