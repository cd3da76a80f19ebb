package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/bus/embedded"
)

// anyPort is where it can always be listened.
const anyPort = "127.0.0.1:0"

// natsAdvice is for whoever finds the address of the embedded NATS server in
// use, or the data folder locked (then dir is nil): how to join the generator
// that may be there, and how to listen elsewhere. at is the address, empty if it
// is not known.
func (f *serveFlags) natsAdvice(fs *pflag.FlagSet, dir *dataDir, at string) string {
	if at == "" {
		return fmt.Sprintf("It is one of the addresses in %s: change it there", f.natsConfig)
	}
	join := "-s nats://" + reachable(at)
	for _, name := range []string{"listen", "nats-config"} {
		if fs.Lookup(name).Annotations[noteSource] != nil { // the environment and the file have it still
			join += " --" + name + " ''"
		}
	}
	host, _, _ := net.SplitHostPort(at)
	elsewhere := "--listen " + quoted(net.JoinHostPort(host, "0"))

	// A folder that embeds an installation cannot join another; one that has
	// nothing of that is as good as any, and stays the one that was asked for.
	given := fs.Lookup("data-dir").Changed
	other := " --data-dir " + quoted(unused(f.dataDir))
	replaced := []string{"server", "listen", "nats-config"}
	if dir == nil || dir.hasStore() || !given && dir.isNew() {
		join += other
		replaced = append(replaced, "data-dir")
	}
	moved := []string{"listen"}
	if dir == nil {
		elsewhere += other
		moved = append(moved, "data-dir")
	}

	clash := inUse(f.http.addr)
	if clash || !fs.Lookup("http").Changed { // the other generator serves HTTP there, or may
		join += " --http ''"
		replaced = append(replaced, "http")
	}
	if clash {
		elsewhere += " --http " + anyPort
		moved = append(moved, "http")
	}
	return "Is a generator running there? Join it:\n" + again(fs, join, replaced...) +
		"\nor listen elsewhere:\n" + again(fs, elsewhere, moved...)
}

// httpAdvice is for whoever finds the address of the HTTP face in use.
func httpAdvice(fs *pflag.FlagSet) string {
	return "Serve HTTP elsewhere, here at any free port:\n" + again(fs, "--http "+anyPort, "http") +
		"\nor not at all:\n" + again(fs, "--http ''", "http")
}

// again is the command that was given, with other flags in place of those that
// are replaced. What is secret in it is left out.
func again(fs *pflag.FlagSet, flags string, replaced ...string) string {
	command := "  leaf serve " + flags
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Changed || f.Annotations[noteSource] != nil || slices.Contains(replaced, f.Name) { // or it is not on the command line
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

// unused is a folder beside this one that is not there yet.
func unused(folder string) string {
	for n := 2; ; n++ {
		other := fmt.Sprintf("%s-%d", strings.TrimRight(folder, "/"), n)
		if _, err := os.Stat(other); err != nil {
			return other
		}
	}
}

// natsAddress is where clients would find the embedded server; empty: it is not
// known. inUse, unless nil, is the error that an address is in use: of those in a
// configuration file it names the clients' alone.
func (f *serveFlags) natsAddress(inUse error) string {
	if inUse != nil && f.natsConfig != "" {
		_, at, _ := strings.Cut(inUse.Error(), embedded.ErrAddressInUse.Error()+": ")
		if _, _, err := net.SplitHostPort(at); err != nil {
			return ""
		}
		return at
	}
	if f.listen == "" && f.natsConfig == "" {
		return defaultListen
	}
	return f.listen
}

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
