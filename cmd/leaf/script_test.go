package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// The scripts of tests/cli. Its README explains the commands that they have besides those of package testscript.
func TestScripts(t *testing.T) {
	cleanEnv(t)
	t.Cleanup(func() { kit.Must(t, kit.Close()) })
	shared := kit.Embed(t, "--node", "shared", "--worker-id", "5", "--http", "127.0.0.1:0")
	commands := map[string]func(*testscript.TestScript, bool, []string){}
	for name, do := range scriptCommands {
		commands[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			s := ts.Value((*script)(nil)).(*script)
			s.TestScript = ts
			e := do(s, args)
			fmt.Fprint(ts.Stdout(), e.Stdout)
			fmt.Fprint(ts.Stderr(), e.Stderr)
			if (e.err == nil) == neg {
				ts.Fatalf("%v", cmp.Or(e.err, errors.New("it did not fail")))
			}
		}
	}
	path := filepath.Dir(kit.Build(t, "cmd/leaf")) + ":" + os.Getenv("PATH")
	testscript.Run(t, testscript.Params{Dir: "../../tests/cli", Cmds: commands, ContinueOnError: true, Setup: func(env *testscript.Env) error {
		tb := env.T().(testing.TB)
		env.Values[(*script)(nil)] = &script{tb: tb, generators: map[string]*kit.Generator{}, args: map[string][]string{}}
		env.Vars = append(env.Vars, "PATH="+path, "HOME="+env.WorkDir, "TZ=UTC", "NATS_URL="+shared.URL, "HTTP="+shared.HTTP,
			"NOBODY="+testkit.FreeAddress(tb), "NAME="+rand.Text())
		return nil
	}})
}

// script is what the commands of a script share.
type script struct {
	*testscript.TestScript
	tb         testing.TB
	generators map[string]*kit.Generator // by the names that the script gives
	args       map[string][]string       // of the generators
}

// ending is what a command did. One that failed has an error.
type ending struct {
	kit.Result
	err error
}

func done(stdout, stderr string, err error) ending {
	return ending{kit.Result{Stdout: stdout, Stderr: stderr}, err}
}

var scriptCommands map[string]func(s *script, args []string) ending

func init() { // not at the declaration, because await refers to it
	just := func(do func(s *script, args []string)) func(*script, []string) ending {
		return func(s *script, args []string) (_ ending) { do(s, args); return }
	}
	scriptCommands = map[string]func(*script, []string) ending{
		"await": (*script).await, "event": (*script).event, "http": (*script).http,
		"generator": starts(kit.Serve), "begin": starts(kit.Begin),
		"ids": (*script).ids, "json": (*script).json, "leaf": (*script).leaf, "oldnats": just((*script).oldNATS),
		"refused": (*script).refused, "request": (*script).request, "signal": (*script).signal, "stream": (*script).stream,
		"cat": func(s *script, args []string) ending {
			text, err := os.ReadFile(s.MkAbs(args[0]))
			return done(string(text), "", err)
		},
		"database":  just(func(s *script, args []string) { s.Setenv(args[0], kit.NewDatabase(s.tb)) }),
		"sql":       just(func(s *script, args []string) { kit.SQL(s.tb, args[0], args[1:]...) }),
		"zookeeper": just(func(s *script, _ []string) { s.Setenv("ZOOKEEPER", kit.ZooKeeperHosts(s.tb)) }),
		"nats": just(func(s *script, args []string) {
			cfg := embedded.Config{}
			for _, file := range args {
				cfg.ConfigFile = s.MkAbs(file)
			}
			s.Setenv("NATS_URL", natskit.StartWith(s.tb, cfg).ClientURL())
		}),
	}
	testing.Init()
	_ = flag.Set("test.parallel", "8") // scripts mostly wait, so more run at once than there are processors
}

// leaf runs in this process, at the script's NATS_URL. A generator gets a process of its own.
func (s *script) leaf(args []string) (e ending) {
	if args[0] == "serve" {
		e.Result = kit.Finish(s.tb, kit.Start(s.tb, kit.Command(s.tb, s.MkAbs("."), nil, args...)))
	} else {
		root := newRoot()
		if cmd, _, err := root.Find(args); err == nil && cmd.Flags().Lookup("server") != nil {
			s.Check(cmd.Flags().Lookup("server").Value.Set(s.Getenv("NATS_URL")))
		}
		var stdout, stderr bytes.Buffer
		ctx, cancel := context.WithCancel(s.tb.Context()) // without a deadline, which would replace --timeout
		defer time.AfterFunc(kit.Patience, cancel).Stop()
		e.Status = cli.Run(ctx, root, args, &stdout, &stderr)
		e.Stdout, e.Stderr = stdout.String(), stderr.String()
	}
	if e.Status != 0 {
		e.err = fmt.Errorf("exit status %d", e.Status)
	}
	return e
}

func (s *script) refused(args []string) ending {
	e := s.leaf(args[2:])
	e.err = nil
	if fmt.Sprint(e.Status) != args[0] || !regexp.MustCompile(args[1]).MatchString(e.Stderr) || e.Stdout != "" {
		e.err = fmt.Errorf("exit status %d, want %s, on stderr %q, and no stdout", e.Status, args[0], args[1])
	}
	return e
}

func (s *script) await(args []string) (e ending) {
	wanted := regexp.MustCompile("(?m)" + args[0])
	testkit.Eventually(s.tb, strings.Join(args, " "), func() bool {
		e = scriptCommands[args[1]](s, args[2:])
		return e.err == nil && wanted.MatchString(e.Stdout)
	})
	return e
}

func (s *script) event(args []string) ending {
	return s.await([]string{args[0], "request", "0", ".", "$JS.API.DIRECT.GET.LEAF_EVENTS.leaf.events." + args[1]})
}

func starts(run func(tb testing.TB, dir string, args ...string) *kit.Generator) func(s *script, args []string) ending {
	return func(s *script, args []string) ending { return s.generator(run, args) }
}

func (s *script) generator(run func(tb testing.TB, dir string, args ...string) *kit.Generator, args []string) ending {
	name, args := args[0], append(slices.Clone(s.args[args[0]]), args[1:]...)
	if !slices.ContainsFunc(args, func(arg string) bool { return arg == "-s" || arg == "--listen" || arg == "--nats-config" }) {
		args = append([]string{"--listen", testkit.FreeAddress(s.tb)}, args...)
	}
	s.Check(os.MkdirAll(s.MkAbs(name), 0o700))
	g := run(s.tb, s.MkAbs(name), args...)
	s.generators[name], s.args[name] = g, args
	for name, value := range map[string]string{"NATS_URL": g.URL, "HTTP": g.HTTP, "NODE": g.Node, "DATA": g.Data} {
		s.Setenv(name, value)
	}
	return done(g.Stdout(), g.Stderr(), nil)
}

func (s *script) signal(args []string) (e ending) {
	g := s.generators[args[1]]
	s.Check(g.Signal(map[string]os.Signal{"INT": os.Interrupt, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}[args[0]]))
	e.Result = kit.Finish(s.tb, g.Process)
	if e.Status != 0 && args[0] != "KILL" {
		e.err = fmt.Errorf("exit status %d", e.Status)
	}
	return e
}

var bytesOfBodies = strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\t`, "\t", `\x00`, "\x00", `\xff`, "\xff")

func (s *script) request(args []string) ending {
	body := bytesOfBodies.Replace(append(args, "")[3])
	if file, ok := strings.CutPrefix(body, "@"); ok {
		body = s.ReadFile(file)
	}
	nc := kit.Connect(s.tb, s.Getenv("NATS_URL"), nats.SkipSubjectValidation())
	defer nc.Close()
	msg, err := nc.Request(args[2], []byte(body), kit.Patience)
	if err != nil {
		return done("", "", err)
	}
	var headers strings.Builder
	s.Check(http.Header(msg.Header).Write(&headers))
	code := cmp.Or(msg.Header.Get("Nats-Service-Error-Code"), msg.Header.Get("Status"), "0")
	form := args[1]
	if args[0] != "0" {
		form = `^\{"code":` + args[0] + `,"reason":"` + args[1] + `","message":"[^\n]{1,900}"(,"retry_after_ms":\d+)?\}$`
	}
	if code != args[0] || !regexp.MustCompile(form).Match(msg.Data) || code != "0" && msg.Header.Get("Nats-Service-Error") == "" {
		err = fmt.Errorf("the code is %s, want %s and %s", code, args[0], form)
	}
	return done(string(msg.Data), headers.String(), err)
}

func (s *script) http(args []string) ending {
	url := args[2]
	if strings.HasPrefix(url, "/") {
		url = s.Getenv("HTTP") + url
	}
	r, err := http.NewRequestWithContext(s.tb.Context(), args[1], url, nil)
	s.Check(err)
	for _, header := range args[3:] {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	by := http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	answer, err := by.RoundTrip(r) // which follows no redirect
	s.Check(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	s.Check(err)
	var headers strings.Builder
	s.Check(answer.Header.Write(&headers))
	if fmt.Sprint(answer.StatusCode) != args[0] {
		err = fmt.Errorf("the answer is %s", answer.Status)
	}
	return done(string(body), headers.String(), err)
}

var idsOrRanges = regexp.MustCompile(`(?m)^(\d+)(?:-(\d+))?$|"first":"(\d+)","last":"(\d+)"`)

func (s *script) ids(args []string) ending {
	var count, first, last int64
	text := s.ReadFile("stdout")
	for _, m := range idsOrRanges.FindAllStringSubmatch(text, -1) {
		from, _ := strconv.ParseInt(m[1]+m[3], 10, 64)
		to, err := strconv.ParseInt(cmp.Or(m[2]+m[4], m[1]), 10, 64)
		if err != nil || from <= last || to < from {
			s.Fatalf("%s after %d: %v", m[0], last, err)
		}
		first, last, count = cmp.Or(first, from), to, count+to-from+1
	}
	s.Setenv("FIRST", fmt.Sprint(first))
	s.Setenv("LAST", fmt.Sprint(last))
	if fmt.Sprint(count) != args[0] {
		s.Fatalf("%d IDs, want %s", count, args[0])
	}
	return done(text, "", nil)
}

func (s *script) json(args []string) (e ending) {
	var want, got any
	s.Check(json.Unmarshal([]byte(s.ReadFile("stdout")), &got))
	s.Check(json.Unmarshal([]byte(s.ReadFile(args[0])), &want))
	anything := gocmp.FilterValues(func(a, b any) bool { return a == "*" || b == "*" }, gocmp.Ignore())
	if diff := gocmp.Diff(want, got, anything); diff != "" {
		e.err = fmt.Errorf("-want +got:\n%s", diff)
	}
	return e
}

func (s *script) stream(args []string) ending {
	nc := kit.Connect(s.tb, s.Getenv("NATS_URL"))
	defer nc.Close()
	js, err := jetstream.New(nc)
	s.Check(err)
	stream, err := js.Stream(s.tb.Context(), args[0])
	s.Check(err)
	cfg := stream.CachedInfo().Config
	text, err := json.Marshal(cfg)
	s.Check(err)
	if len(args) > 1 {
		s.Check(json.Unmarshal([]byte(args[1]), &cfg))
		_, err = js.UpdateStream(s.tb.Context(), cfg)
	}
	return done(string(text), "", err)
}

// oldNATS greets as a NATS server of this version does, and takes no heed of what it is sent.
func (s *script) oldNATS(args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.Check(err)
	s.tb.Cleanup(func() { l.Close() })
	s.Setenv("OLD", "nats://"+l.Addr().String())
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			fmt.Fprintf(conn, "INFO {\"server_name\":\"old\",\"version\":%q,\"headers\":true,\"max_payload\":1048576}\r\nPONG\r\n", args[0])
		}
	}()
}
