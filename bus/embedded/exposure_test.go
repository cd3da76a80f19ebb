package embedded

import (
	"crypto/tls"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

func TestCredentials(t *testing.T) {
	const file = `authorization { user: file, password: secret }`
	long := strings.Repeat("x", 3000) // longer than what nats-server reads at once
	for name, c := range map[string]struct {
		file                  string
		user, password, token string
		right                 nats.Option
	}{
		"file":              {file: file, right: nats.UserInfo("file", "secret")},
		"file beats flags":  {file: file, user: "flag", password: "other", right: nats.UserInfo("file", "secret")},
		"user and password": {user: "flag", password: "secret", right: nats.UserInfo("flag", "secret")},
		"token":             {token: "secret", right: nats.Token("secret")},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, c.file)
			cfg.User, cfg.Password, cfg.Token = c.user, c.password, c.token
			s := start(t, cfg)
			for way, opts := range map[string][]nats.Option{"tcp": nil, "in-process": {s.InProcess()}} {
				bucket(t, connect(t, s, append(opts, c.right)...))
				for wrong, option := range map[string]nats.Option{
					"no credentials": nats.Name("nobody"),
					"a password":     nats.UserInfo("flag", "wrong"),
					"a token":        nats.Token("wrong"),
					"a long token":   nats.Token(long),
				} {
					nc, err := nats.Connect(s.ClientURL(), append(opts, option)...)
					nc.Close()
					if !errors.Is(err, nats.ErrAuthorization) {
						t.Errorf("%s with %s: %v", way, wrong, err)
					}
				}
			}
		})
	}
}

func TestHalfCredentials(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no password": func(c *Config) { c.User = "leaf" },
		"no user":     func(c *Config) { c.Password = "secret" },
		"both kinds":  func(c *Config) { c.User, c.Password, c.Token = "leaf", "secret", "token" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, "")
			change(&cfg)
			startError(t, cfg)
		})
	}
}

func TestOpenToNetwork(t *testing.T) {
	const system = `accounts { $SYS { users: [{user: admin, password: secret}] } }`
	for name, c := range map[string]struct {
		listen, token, file string
		want                error
	}{
		"every interface":           {listen: "0.0.0.0:0", want: ErrOpenToNetwork},
		"every interface, IPv6":     {listen: "[::]:0", want: ErrOpenToNetwork},
		"address of another":        {listen: "192.0.2.1:0", want: ErrOpenToNetwork},
		"by the file":               {file: `listen: "0.0.0.0:-1"`, want: ErrOpenToNetwork},
		"token":                     {listen: "0.0.0.0:0", token: "secret"},
		"empty authorization":       {listen: "0.0.0.0:0", file: `authorization { timeout: 2 }`, want: ErrOpenToNetwork},
		"system account only":       {listen: "0.0.0.0:0", file: system, want: ErrOpenToNetwork},
		"loopback, another":         {listen: "127.0.0.2:0"},
		"websocket":                 {listen: anyPort, file: `websocket { port: -1, no_tls: true }`, want: ErrOpenToNetwork},
		"websocket, local":          {listen: anyPort, file: `websocket { listen: "127.0.0.1:-1", no_tls: true }`},
		"websocket, its own":        {listen: anyPort, file: `websocket { port: -1, no_tls: true, authorization { token: secret } }`},
		"websocket's is not client": {listen: "0.0.0.0:0", file: `websocket { port: -1, no_tls: true, authorization { token: secret } }`, want: ErrOpenToNetwork},
		"mqtt":                      {listen: anyPort, file: `server_name: a, mqtt { port: -1 }`, want: ErrOpenToNetwork},
		"leafnodes":                 {listen: anyPort, file: `leafnodes { port: -1 }`, want: ErrOpenToNetwork},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, c.file)
			cfg.Listen, cfg.Token = c.listen, c.token
			if c.want == nil {
				s := start(t, cfg)
				if c.token != "" {
					connect(t, s, nats.Token(c.token))
				}
				return
			}
			if err := startError(t, cfg); !errors.Is(err, c.want) {
				t.Errorf("want %v", c.want)
			}
		})
	}
}

// With users for the system account only, nats-server lets everybody else in.
// Credentials given beside such a file would demand nothing.
func TestSystemAccountOnly(t *testing.T) {
	cfg := config(t, `accounts { $SYS { users: [{user: admin, password: secret}] } }`)
	s := start(t, cfg)
	connect(t, s)

	cfg.Token = "secret"
	if err := startError(t, cfg); !strings.Contains(err.Error(), cfg.ConfigFile) {
		t.Error("the file is not named")
	}
}

func TestMutualTLSGuards(t *testing.T) {
	for name, c := range map[string]struct {
		opts server.Options
		want error
	}{
		"no certificate asked":  {server.Options{TLSConfig: &tls.Config{}}, ErrOpenToNetwork},
		"certificate required":  {server.Options{TLSConfig: &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}}, nil},
		"but plain allowed too": {server.Options{TLSConfig: &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}, AllowNonTLS: true}, ErrOpenToNetwork},
	} {
		c.opts.Host = "0.0.0.0"
		if err := checkExposure(&c.opts, false); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A reload takes other users. It opens no server to the network, and takes no half of a change that it cannot make.
func TestReload(t *testing.T) {
	cfg := config(t, `authorization { user: a, password: one }`)
	cfg.Listen = "0.0.0.0:0"
	s := start(t, cfg)
	accepts := func(password string) bool {
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo("a", password))
		nc.Close()
		return err == nil
	}
	for _, row := range []struct{ file, refused string }{
		{`authorization { user: a, password: two }`, ""},
		{``, ErrOpenToNetwork.Error()},
		{`accounts { $SYS { users: [{user: admin, password: secret}] } }`, ErrOpenToNetwork.Error()},
		{"server_name: other\nauthorization { user: a, password: three }", "restart the generator"},
		{`authorization { user: a, password`, "nats.conf"},
	} {
		if err := os.WriteFile(cfg.ConfigFile, []byte(row.file), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Reload(); (row.refused == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), row.refused) {
			t.Errorf("reload of %q: %v", row.file, err)
		}
		if !accepts("two") || accepts("one") || accepts("three") {
			t.Errorf("after the reload of %q the password is not the second one", row.file)
		}
	}
	open := config(t, "")
	if err := start(t, open).Reload(); err != nil {
		t.Errorf("a reload without a file: %v", err)
	}
}
