package cli

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// identity returns the options that say who connects. Credentials in flags replace all those of a
// NATS context, which would be sent as well. A password alone is for the user in the context. What
// comes from a file is read again at each connect, so that a rotation needs no restart; nats.go
// does that for --creds and the files of TLS.
func (c *Conn) identity() (opts []nats.Option) {
	if c.User != "" || c.Token != "" || c.creds != "" || c.nkey != "" {
		opts = append(opts, func(o *nats.Options) error {
			o.User, o.Password, o.Token = "", "", ""
			o.Nkey, o.UserJWT, o.SignatureCB = "", nil, nil
			return nil
		})
	}
	if c.User != "" || c.Password != "" {
		password := latest(c.passwordFile, c.Password)
		opts = append(opts, func(o *nats.Options) error {
			user := cmp.Or(c.User, o.User)
			o.User, o.Password, o.UserInfo = "", "", func() (string, string) { return user, password() }
			return nil
		})
	}
	if c.Token != "" {
		opts = append(opts, nats.TokenHandler(latest(c.tokenFile, c.Token)))
	}
	return opts
}

// latest returns a function that reads a secret again from its file, if it comes from one, and
// returns the last one while that fails.
func latest(path, value string) func() string {
	reread := Reread(path)
	var last atomic.Pointer[string]
	last.Store(&value)
	return func() string {
		if reread != nil {
			if value, err := reread(); err == nil {
				last.Store(&value)
			}
		}
		return *last.Load()
	}
}

// Latest returns a function that reads password and token again; nil: neither comes from a file
// that can be read again.
func (c *Conn) Latest() func() (password, token string) {
	if Reread(c.passwordFile) == nil && Reread(c.tokenFile) == nil {
		return nil
	}
	password, token := latest(c.passwordFile, c.Password), latest(c.tokenFile, c.Token)
	return func() (string, string) { return password(), token() }
}

// useCreds sets the credentials that a file holds, which it reads once now to find a mistake.
func useCreds(file string, o *nats.Options) error {
	if err := nats.UserCredentials(file)(o); err != nil {
		return err
	}
	_, err := o.UserJWT()
	return err
}

// followSeed sets the nkey that a file holds.
func followSeed(file string, o *nats.Options) error {
	seed, err := nats.NkeyOptionFromSeed(file)
	if err != nil {
		return err
	}
	return seed(o)
}

// FollowNkey is the last option of a connection. It reads the file of --nkey again before each
// reconnect: another seed has another public key, which nats.go reads only once.
func (c *Conn) FollowNkey(o *nats.Options) error {
	if c.nkey == "" {
		return nil
	}
	var conn atomic.Pointer[nats.Conn]
	o.ConnectedCB = conn.Store
	pick := o.ReconnectToServerCB
	o.ReconnectToServerCB = func(pool []nats.Server, info nats.ServerInfo) (*nats.Server, time.Duration) {
		if nc := conn.Load(); nc != nil { // nats.go holds its lock
			_ = followSeed(c.nkey, &nc.Opts)
		}
		if pick == nil {
			return nil, 0
		}
		return pick(pool, info)
	}
	return nil
}
