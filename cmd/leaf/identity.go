package main

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"
)

// identity returns the options that say who connects. Credentials in flags replace all those of a NATS
// context, which would be sent as well. A password alone is for the user in the context. What comes from a file is read
// again at each connect, so that a rotation needs no restart; nats.go does that for --creds and the files of TLS.
func (c *connFlags) identity() ([]nats.Option, error) {
	var opts []nats.Option
	if c.user != "" || c.token != "" || c.creds != "" || c.nkey != "" {
		opts = append(opts, func(o *nats.Options) error {
			o.User, o.Password, o.Token = "", "", ""
			o.Nkey, o.UserJWT, o.SignatureCB = "", nil, nil
			return nil
		})
	}
	if password := latest(c.passwordFlag); password != nil {
		opts = append(opts, func(o *nats.Options) error {
			user := cmp.Or(c.user, o.User)
			o.User, o.Password, o.UserInfo = "", "", func() (string, string) { return user, password() }
			return nil
		})
	} else if c.user != "" {
		opts = append(opts, nats.UserInfo(c.user, c.password))
	} else if c.password != "" {
		opts = append(opts, func(o *nats.Options) error { o.Password = c.password; return nil })
	}
	if token := latest(c.tokenFlag); token != nil {
		opts = append(opts, nats.TokenHandler(token))
	} else if c.token != "" {
		opts = append(opts, nats.Token(c.token))
	}
	if c.creds != "" {
		opts = append(opts, nats.UserCredentials(c.creds))
	}
	if c.nkey != "" {
		seed, err := nats.NkeyOptionFromSeed(c.nkey)
		if err != nil {
			return nil, usagef("--nkey: %w", err)
		}
		opts = append(opts, seed)
	}
	return opts, nil
}

// latest returns a function that reads a secret again from its file, and returns the last one while that fails; nil:
// the secret comes from no file that can be read again.
func latest(secret *pflag.Flag) func() string {
	reread := rereadSecret(secret)
	if reread == nil {
		return nil
	}
	var last atomic.Value
	last.Store(secret.Value.String())
	return func() string {
		if value, err := reread(); err == nil {
			last.Store(value)
		}
		return last.Load().(string)
	}
}

// latest returns a function that reads password and token again; nil: neither comes from a file that can be read again.
func (c *connFlags) latest() func() (password, token string) {
	rereadPassword, rereadToken := latest(c.passwordFlag), latest(c.tokenFlag)
	switch {
	case rereadPassword != nil:
		return func() (string, string) { return rereadPassword(), c.token }
	case rereadToken != nil:
		return func() (string, string) { return c.password, rereadToken() }
	}
	return nil
}

// followNkey is the last option of a connection. It reads the file of --nkey again before each reconnect: another
// seed has another public key, which nats.go reads only once.
func (c *connFlags) followNkey(o *nats.Options) error {
	if c.nkey == "" {
		return nil
	}
	var conn atomic.Pointer[nats.Conn]
	o.ConnectedCB = conn.Store
	pick := o.ReconnectToServerCB
	o.ReconnectToServerCB = func(pool []nats.Server, info nats.ServerInfo) (*nats.Server, time.Duration) {
		if nc := conn.Load(); nc != nil { // nats.go holds its lock
			if seed, err := nats.NkeyOptionFromSeed(c.nkey); err == nil {
				_ = seed(&nc.Opts)
			}
		}
		if pick == nil {
			return nil, 0
		}
		return pick(pool, info)
	}
	return nil
}
