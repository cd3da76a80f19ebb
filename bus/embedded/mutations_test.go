//go:build mutations

package embedded

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations demands that a test finds each of these changes of the server: what it keeps, whom it lets in, and when
// it counts as healthy.
func TestMutations(t *testing.T) {
	for _, m := range []struct{ name, by, file, before, after string }{
		{"a file weakens the store", "TestFileCannotWeakenStore", "config.go",
			"opts.SyncAlways = true", "opts.SyncAlways = opts.SyncAlways || false"},
		{"a reload of nats-server's own drops the configuration", "TestNoReload", "config.go",
			"		opts.ConfigFile = \"\" // a", "		// a"},
		{"a client that hangs stays for minutes", "TestDefaultsOfTheFile", "config.go",
			"cmp.Or(opts.PingInterval, pingEvery)", "opts.PingInterval"},
		{"a server listens on every interface", "TestDefaultAddress", "config.go",
			"cmp.Or(opts.Host, \"127.0.0.1\")", "cmp.Or(opts.Host, \"0.0.0.0\")"},
		{"a port that is none is any", "TestBadListen", "config.go",
			"digits, 10, 16)\n	if err != nil {", "digits, 10, 16)\n	if digits == \"\" && err != nil {"},
		{"a file that cannot be read is not named", "TestBadFile", "config.go",
			"NATS configuration file %s: %w\", c.ConfigFile, err)", "NATS configuration: %w\", err)"},

		// Who is let in.
		{"a user without a password needs none", "TestHalfCredentials", "config.go",
			"if (c.User == \"\") != (c.Password == \"\") {", "if false {"},
		{"any password will do", "TestCredentials", "config.go",
			" && equal(shown.Password, password)", " && password != \"\""},
		{"a refused connection in memory hangs", "TestCredentials/token", "inprocess.go",
			"return &greetingConn{Conn: pipe, sent: make(chan struct{})}, err", "return pipe, err"},
		{"a WebSocket is open to the network", "TestOpenToNetwork", "exposure.go",
			"{\"websocket\", ws.Host, ws.Port, ws.Port != 0,", "{\"websocket\", ws.Host, ws.Port, false,"},
		{"clients without TLS need no certificate", "TestMutualTLSGuards", "exposure.go",
			" && !opts.AllowNonTLS},", "},"},
		{"a password demands nothing", "TestSystemAccountOnly", "server.go",
			"if anonymous && (cfg.User", "if false && (cfg.User"},
		{"a reload opens a server to the network", "TestReload", "server.go",
			"	trial, _, err := guarded(s.cfg)\n	if err != nil {\n		return err\n	}\n	trial.Shutdown()\n", ""},

		// The start.
		{"a certificate that other servers refuse is good", "TestCheckCertificates", "certificate.go",
			"		uses[\"clientAuth\"] = x509.ExtKeyUsageClientAuth //", "		//"},
		{"the streams of a single server are left for nats-server to delete", "TestSingleServerJoinsCluster", "room.go",
			"		return os.Rename(store, aside)\n", "		return nil\n"},
		{"a folder that is not writable is not named", "TestStoreFolder", "room.go",
			"	if err := CheckRoom(s.dir); err != nil {", "	if err := CheckRoom(s.dir); s.dir == \"\" {"},
		{"a listener in use is any error", "TestAddressInUse", "server.go",
			"case text != nil && strings.Contains(*text, syscall.EADDRINUSE.Error()):", "case false:"},
		{"an address cannot be dialed", "TestClientURL", "server.go",
			"dialable.Replace(s.ns.ClientURL())", "s.ns.ClientURL()"},
		{"a server does not know its routes", "TestRoutes", "server.go",
			"s.routes = append(s.routes, route.Host)", "_ = route"},

		// Health.
		{"a server that has just started is healthy", "TestHealthInCluster", "health.go",
			"case found.passing && h.ready && h.err == nil", "case found.passing && h.err == nil"},
		{"a full disk takes a restart", "TestReports", "health.go",
			"case found.stopped && !found.full &&", "case found.stopped &&"},
		{"elections add up", "TestElectionIsNoFault", "health.go",
			"h.ready, h.err, h.since = true, nil, time.Time{}", "h.ready, h.err = true, nil"},
		{"a check that hangs is no fault", "TestSlowCheck", "health.go",
			"took > slowCheck {", "took > time.Hour {"},
		{"a server that has stopped recovers", "TestAwaitRestart", "health.go",
			"case errors.Is(h.err, ErrRestart): //", "case false: //"},
		{"a broken stream of others takes restarts", "TestWriteErrorOfOthers", "logger.go",
			"!ofForeignStream(text) {", "text != \"\" {"},
		{"a broken group of servers takes no restart", "TestOfOthers", "logger.go",
			" && !group.MatchString(name)", ""},
		{"a server of the cluster that is away is an error in the log", "TestLogger", "logger.go",
			"strings.HasPrefix(format, noRoute) {", "format == noRoute {"},
	} {
		t.Run(m.name, func(t *testing.T) {
			mutate.Runner{}.Run(t, m.by, mutate.Edit{m.file, m.before, m.after})
		})
	}
}
