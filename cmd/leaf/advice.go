package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// anyPort is an address that is never in use.
const anyPort = "127.0.0.1:0"

// setting is a flag and its value in a command that an error shows.
type setting struct{ flag, value string }

// natsAdvice shows, where the address of the embedded NATS server is in use, how to join the
// generator that may be there, and how to listen elsewhere. locked says that the data folder
// is in use too.
func (f *serveFlags) natsAdvice(fs *pflag.FlagSet, locked bool) string {
	if f.natsConfig != "" {
		return fmt.Sprintf("Give another --listen, or change the address in %s", f.natsConfig)
	}
	at := f.clientAddress()
	host, _, _ := net.SplitHostPort(at)
	// A folder that holds an installation cannot join another one.
	folder := setting{"data-dir", unused(f.dataDir)}
	join := []setting{{"server", "nats://" + reachable(at)}, folder}
	elsewhere := []setting{{"listen", net.JoinHostPort(host, "0")}}
	if locked {
		elsewhere = append(elsewhere, folder)
	}
	// The other generator may have the default address of HTTP.
	if !fs.Lookup("http").Changed || inUse(f.http.addr) {
		join = append(join, setting{"http", ""})
		elsewhere = append(elsewhere, setting{"http", anyPort})
	}
	if f.listen != "" {
		join = append(join, setting{"listen", ""})
	}
	listen := again(fs, elsewhere...)
	if f.mysql.dsn != "" || f.zookeeper.hosts != "" { // that generator would probably refuse them: its state is elsewhere
		return "Is a generator running there? Stop it, or listen elsewhere:\n" + listen
	}
	return "Is a generator running there? Join it:\n" + again(fs, join...) + "\nor listen elsewhere:\n" + listen
}

// httpAdvice shows, where the address of HTTP is in use, what to do.
func httpAdvice(fs *pflag.FlagSet) string {
	return "Serve HTTP elsewhere, here at any free port:\n" + again(fs, setting{"http", anyPort}) +
		"\nor not at all:\n" + again(fs, setting{"http", ""})
}

// again is the command that was given, with these settings in place of its own. It does not show secrets.
func again(fs *pflag.FlagSet, settings ...setting) string {
	command := "  leaf serve"
	for _, s := range settings {
		command += strings.Replace(" --"+s.flag, "--server", "-s", 1) + " " + quoted(s.value)
	}
	fs.VisitAll(func(f *pflag.Flag) {
		replaced := slices.ContainsFunc(settings, func(s setting) bool { return s.flag == f.Name })
		if !f.Changed || f.Annotations[noteSource] != nil || replaced { // or it is not on the command line
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
	return command
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=,@-]+$`)

// quoted is a word of a shell's command.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// unused is a folder beside this one that does not exist.
func unused(folder string) string {
	for n := 2; ; n++ {
		other := fmt.Sprintf("%s-%d", strings.TrimRight(folder, "/"), n)
		if _, err := os.Stat(other); err != nil {
			return other
		}
	}
}

// clientAddress is where clients find the embedded server, unless a configuration file says it.
func (f *serveFlags) clientAddress() string { return cmp.Or(f.listen, defaultListen) }

// reachable is how this machine reaches a listener at the address.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

// inUse reports whether another process listens at the address.
func inUse(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		l.Close()
	}
	return errors.Is(err, syscall.EADDRINUSE)
}
