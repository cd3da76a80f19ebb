package kit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/internal/testkit"
)

// orphanEnv makes the test binary start a process, write its number into this file, and hang.
const orphanEnv = "LEAF_TEST_ORPHAN"

func TestMain(m *testing.M) {
	if file := os.Getenv(orphanEnv); file != "" {
		p, err := Launch(Program{Name: "sleep", Command: exec.Command("sleep", "1000")})
		if err != nil {
			panic(err)
		}
		_ = os.WriteFile(file, []byte(strconv.Itoa(p.program.Command.Process.Pid)), 0o600) // its reader sees it fail
		select {}
	}
	os.Exit(Main(m))
}

// No process outlives a test binary that is killed.
func TestProcessDiesWithTheTest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	test := exec.Command(os.Args[0])
	test.Env = append(os.Environ(), orphanEnv+"="+file)
	Must(t, test.Start())
	var pid int
	testkit.Eventually(t, "the process runs", func() bool {
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(string(text))
		return pid > 0
	})
	_ = test.Process.Kill() // an error shows below
	_ = test.Wait()
	testkit.Eventually(t, "the process ends", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}

// Tests of crashes rest on this: a killed server keeps what it committed, and a frozen one answers nothing.
func TestMariaDBKeepsWhatItCommitted(t *testing.T) {
	t.Parallel()
	// A test's folder can have a longer path than a socket may have.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	Must(t, os.Mkdir(dir, 0o700))
	s, err := StartMariaDB(dir, "--innodb-lock-wait-timeout=7")
	Must(t, err)
	t.Cleanup(func() { s.Close() })
	dsn, err := s.Database()
	Must(t, err)
	SQL(t, dsn, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
	Must(t, s.Kill())
	l, err := net.Listen("tcp", s.Addr())
	Must(t, err)
	if err := s.Run(); !errors.Is(err, ErrPortTaken) {
		t.Errorf("it ran on a taken port: %v", err)
	}
	l.Close()
	Must(t, s.Run())
	db, err := openMySQL(dsn)
	Must(t, err)
	defer db.Close()
	var rows, wait, flush int
	const query = "SELECT COUNT(*), @@innodb_lock_wait_timeout, @@innodb_flush_log_at_trx_commit FROM t"
	Must(t, db.QueryRow(query).Scan(&rows, &wait, &flush))
	if rows != 1 || wait != 7 || flush != 1 {
		t.Errorf("%d rows after a kill, lock wait timeout %d, flush %d", rows, wait, flush)
	}
	Must(t, s.Freeze())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := db.ExecContext(ctx, "DO 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen server answers: %v", err)
	}
	if err := s.Stop(); err == nil {
		t.Error("a frozen process was stopped")
	}
	Must(t, s.Thaw())
	Must(t, db.PingContext(t.Context()))
	Must(t, s.Stop())
}

func TestZooKeeperKeepsWhatItCommitted(t *testing.T) {
	t.Parallel()
	s := NewZooKeeper(t)
	connect := func() *zk.Conn {
		conn, _, err := zk.Connect([]string{s.Addr()}, 10*time.Second, zk.WithLogInfo(false))
		Must(t, err)
		return conn
	}
	conn := connect()
	_, err := conn.Create("/node", []byte("kept"), 0, zk.WorldACL(zk.PermAll))
	Must(t, err)
	conn.Close() // its reconnection is not what this test is about
	Must(t, s.Kill())
	Must(t, s.Run())
	conn = connect()
	defer conn.Close()
	if data, _, err := conn.Get("/node"); err != nil || string(data) != "kept" {
		t.Errorf("after a kill the node has %q, %v", data, err)
	}
	Must(t, s.Freeze())
	answer := make(chan error, 1)
	go func() {
		_, _, err := conn.Get("/")
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Errorf("a frozen server answers: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	Must(t, s.Thaw())
	Must(t, <-answer)
}

// TestLink has a server that keeps what it is sent and answers it in capitals.
func TestLink(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	defer server.Close()
	received := make(chan string, 10)
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				buf := make([]byte, 100)
				for {
					n, err := conn.Read(buf)
					if err != nil {
						return
					}
					received <- string(buf[:n])
					_, _ = conn.Write(bytes.ToUpper(buf[:n])) // the client sees what is missing
				}
			}()
		}
	}()
	for _, test := range []struct {
		name            string
		set             func(*Link)
		received, reply bool
		end             error // of the wait for a reply
	}{
		{"forward", func(*Link) {}, true, true, nil},
		{"slow", func(l *Link) { l.Delay(5 * time.Millisecond) }, true, true, nil},
		{"silent", func(l *Link) { l.Hang(true) }, false, false, os.ErrDeadlineExceeded},
		{"refusing", func(l *Link) { l.Refuse(true) }, false, false, io.EOF},
		{"cut before", func(l *Link) { l.OnRequest(func([]byte) Action { return CutBefore }) }, false, false, io.EOF},
		{"cut after", func(l *Link) { l.OnRequest(func([]byte) Action { return CutAfter }) }, true, false, io.EOF},
		{"drop", func(l *Link) { l.OnRequest(func([]byte) Action { return Drop }) }, false, false, os.ErrDeadlineExceeded},
		{"led elsewhere", func(l *Link) { l.Lead("127.0.0.1:1") }, false, false, io.EOF},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := NewLink(t, server.Addr().String())
			conn, err := net.Dial("tcp", l.Addr())
			Must(t, err)
			defer conn.Close()
			test.set(l)
			_, _ = conn.Write([]byte("hello")) // an error shows below
			Must(t, conn.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
			reply := make([]byte, 5)
			_, err = io.ReadFull(conn, reply)
			if test.reply != (string(reply) == "HELLO") || test.reply && err != nil {
				t.Errorf("the reply is %q, %v", reply, err)
			}
			if !test.reply && !errors.Is(err, test.end) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client ends with %v, want %v", err, test.end)
			}
			select {
			case text := <-received:
				if !test.received {
					t.Errorf("the server got %q", text)
				}
			default:
				if test.received {
					t.Error("the server got nothing")
				}
			}
		})
	}
}

// A link that is silent in one direction holds that one only. When it is released, what was held arrives.
func TestLinkSilentInOneDirection(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	defer listener.Close()
	for _, test := range []struct {
		name    string
		hang    func(*Link, bool)
		answers bool // they hang, not requests
	}{
		{"requests hang", (*Link).HangRequests, false},
		{"answers hang", (*Link).HangAnswers, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := NewLink(t, listener.Addr().String())
			client, err := net.Dial("tcp", l.Addr())
			Must(t, err)
			defer client.Close()
			server, err := listener.Accept()
			Must(t, err)
			defer server.Close()
			arrives := func(at net.Conn, within time.Duration) bool {
				Must(t, at.SetReadDeadline(time.Now().Add(within)))
				text := make([]byte, 5)
				_, err := io.ReadFull(at, text)
				if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal(err)
				}
				return string(text) == "hello"
			}
			held, other := server, client // where the direction that hangs ends, and the other one
			if test.answers {
				held, other = client, server
			}
			test.hang(l, true)
			for _, conn := range []net.Conn{client, server} {
				_, err := io.WriteString(conn, "hello")
				Must(t, err)
			}
			if !arrives(other, Patience) {
				t.Error("the other direction hangs, too")
			}
			if arrives(held, 50*time.Millisecond) {
				t.Error("what should hang arrived")
			}
			test.hang(l, false)
			if !arrives(held, Patience) {
				t.Error("what was held did not arrive")
			}
		})
	}
}
