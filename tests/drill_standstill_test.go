//go:build drills

package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A generator is frozen, its data folder is started elsewhere, and it thaws: no
// snowflake comes twice. Root must run this: it mounts file systems.
func TestDrillThawBesideCopy(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) (folder string, elsewhere func() string){
		// The inodes are the same as on the fresh file system before.
		"files copied to a fresh file system": func(t *testing.T) (string, func() string) {
			from := mount(t, "-t", "tmpfs", "-o", "size=16m", "tmpfs")
			return from, func() string {
				to := mount(t, "-t", "tmpfs", "-o", "size=16m", "tmpfs")
				run(t, "cp", "-a", from+"/.", to)
				return to
			}
		},
		// Inode and birth time are the same, as on a volume that is attached to another machine.
		"image of the volume": func(t *testing.T) (string, func() string) {
			images := t.TempDir()
			first, second := filepath.Join(images, "1"), filepath.Join(images, "2")
			run(t, "truncate", "-s", "16M", first)
			run(t, "mkfs.ext4", "-q", first)
			from := mount(t, "-o", "loop", first)
			return from, func() string {
				run(t, "sync", "-f", from)
				run(t, "cp", first, second)
				return mount(t, "-o", "loop", second)
			}
		},
	} {
		for _, pause := range []time.Duration{1200 * time.Millisecond, 3 * time.Second, 6 * time.Second, 9 * time.Second} {
			t.Run(fmt.Sprintf("%s, %v", name, pause), func(t *testing.T) {
				folder, elsewhere := start(t)
				url := newNATS(t).ClientURL()
				original := serve(t, folder, "-s", url)
				probe := startProbe(t, connect(t, url), bus.SubjectSnowflake)
				l := startLoad(t, loadConfig{
					callers: 2, maxBatch: 4000, patience: time.Second, mayGiveUp: true, expected: []bus.Reason{bus.NoWorkerID},
				}, url)
				l.more(300)
				thaw := time.After(pause)
				original.freeze()
				other := serve(t, elsewhere(), "-s", url)
				p := newPatient(t, url)
				<-thaw
				p.send(func() { original.signal(syscall.SIGCONT) })
				l.more(2000)
				probe.stop()
				// NATS may have dropped its connection, so this comes after it has connected again.
				testkit.Eventually(t, "the original to say that it stood still, beside "+other.node, func() bool {
					log := original.stderr.String()
					return strings.Contains(log, "stood still") || strings.Contains(log, "the worker is lost")
				})
				p.end(l, original, other)
				l.stop()
			})
		}
	}
}

// patient is a caller that waits for its answers for as long as it takes.
type patient struct {
	t       *testing.T
	nc      *nats.Conn
	inbox   string
	answers chan *nats.Msg
}

const patientRequests = 1000

func newPatient(t *testing.T, url string) *patient {
	t.Helper()
	p := &patient{t: t, nc: connect(t, url), answers: make(chan *nats.Msg, 2*patientRequests)}
	p.inbox = p.nc.NewInbox()
	_, err := p.nc.ChanSubscribe(p.inbox, p.answers)
	must(t, err)
	return p
}

// send sends half of the requests before the thaw, and half until some time after it. Half of them wait in the connection of the
// frozen generator.
func (p *patient) send(thaw func()) {
	p.t.Helper()
	ask := func() { must(p.t, p.nc.PublishRequest(bus.SubjectSnowflake, p.inbox, []byte("400"))) }
	for range patientRequests / 2 {
		ask()
	}
	must(p.t, p.nc.Flush())
	thaw()
	for range patientRequests / 2 {
		ask()
		time.Sleep(time.Millisecond) // so that some come at each moment of the thaw
	}
}

// end waits for the answers. A generator that stood still for over 5 s may drop the requests that came meanwhile, but then it says
// so, and serves again. The end of a generator answers all that it has accepted, so no answer comes later. It ends the load, and
// gives it the IDs.
func (p *patient) end(l *load, original, other *generator) {
	p.t.Helper()
	dropped := func() bool {
		return strings.Contains(original.stderr.String(), "the requests that came meanwhile are dropped")
	}
	testkit.Eventually(p.t, "answers to all requests, or the original to say that it dropped some", func() bool {
		return len(p.answers) == patientRequests || dropped()
	})
	l.cancel()
	l.wg.Wait()
	other.stop()
	testkit.Eventually(p.t, "an answer of the original, which alone is left", func() bool {
		msg, err := p.nc.Request(bus.SubjectSnowflake, nil, time.Second)
		return err == nil && len(msg.Header) == 0
	})
	original.stop()
	must(p.t, p.nc.Flush()) // what they published has come
	answered, granted := len(p.answers), 0
	for range answered {
		if ranges, err := bus.ParseReply((<-p.answers).Data); err == nil {
			l.record(ranges, 0)
			granted++
		}
	}
	p.t.Logf("%d of %d requests were answered, %d of them with IDs; the original dropped some: %v", answered, patientRequests, granted, dropped())
	if granted == 0 || answered > patientRequests || answered < patientRequests && !dropped() {
		p.t.Errorf("%d of %d requests were answered, %d of them with IDs, and the original says that it dropped some: %v",
			answered, patientRequests, granted, dropped())
	}
}

// mount mounts a file system until the test ends, and returns where.
func mount(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, "mount", append(args, dir)...)
	t.Cleanup(func() { run(t, "umount", dir) })
	folder := filepath.Join(dir, "work")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	return folder
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}
