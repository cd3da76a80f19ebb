package helm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	core "k8s.io/api/core/v1"
)

// patience bounds each wait. Only a broken chart uses it up.
const patience = time.Minute

// leaf builds the program of this repository, once.
var leaf = sync.OnceValues(func() (string, error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("leaf-%d", os.Getpid()))
	out, err := exec.Command("go", "build", "-C", "../..", "-o", path, "./cmd/leaf").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	status := m.Run()
	if path, err := leaf(); err == nil {
		os.Remove(path)
	}
	os.Exit(status)
}

// pod is one of a chart's as a process of this machine. Its name in the network is a port, and its volumes are a
// folder.
type pod struct {
	*testing.T
	objects
	name, dir, http string
	files           map[string]string // the secrets, by their path in /etc/leaf
	adapt           *strings.Replacer // what is different on this machine
}

// newPods writes the volumes of all pods. Of replaced, each first text becomes the second one.
func newPods(t *testing.T, values string, files map[string]string, replaced ...string) (pods []*pod) {
	t.Helper()
	o, err := render(values)
	must(t, err)
	var ports [][]string
	for i := range *o.pods.Spec.Replicas {
		name := fmt.Sprintf("%s-%d", o.pods.Name, i)
		host := name + "." + o.pods.Spec.ServiceName + ".shop.svc"
		ports = append(ports, []string{free(t), free(t), free(t)})
		replaced = append(replaced, host+":4222", ports[i][0], host+":6222", ports[i][1])
		pods = append(pods, &pod{T: t, objects: o, name: name, dir: t.TempDir(), http: ports[i][2], files: files})
	}
	for i, p := range pods {
		p.adapt = strings.NewReplacer(append(replaced, "0.0.0.0:4222", ports[i][0], "0.0.0.0:6222", ports[i][1],
			"0.0.0.0:8080", p.http, "/etc/leaf/", p.dir+"/", "/data/", p.dir+"/data/")...)
		for file, text := range o.config.Data {
			put(t, filepath.Join(p.dir, "config", file), p.adapt.Replace(text))
		}
		for file, text := range files {
			put(t, filepath.Join(p.dir, file), text)
		}
	}
	return pods
}

// command is what the container runs with args, and with its environment only.
func (p *pod) command(args ...string) *exec.Cmd {
	p.Helper()
	path, err := leaf()
	must(p.T, err)
	given := make(map[string]string)
	expand := func(text string) string {
		return p.adapt.Replace(regexp.MustCompile(`\$\(\w+\)`).ReplaceAllStringFunc(text, func(name string) string {
			return given[name[2:len(name)-1]]
		}))
	}
	cmd := exec.Command(path)
	cmd.Env = []string{}
	for _, variable := range p.container.Env {
		value := expand(variable.Value)
		if from := variable.ValueFrom; from != nil && from.SecretKeyRef != nil {
			value = p.files["secrets/"+from.SecretKeyRef.Key]
		} else if from != nil {
			value = p.name
		}
		given[variable.Name] = value
		cmd.Env = append(cmd.Env, variable.Name+"="+value)
	}
	for _, arg := range args {
		cmd.Args = append(cmd.Args, expand(arg))
	}
	return cmd
}

// start runs the container until the test ends.
func (p *pod) start() *exec.Cmd {
	p.Helper()
	cmd := p.command(p.container.Args...)
	log, err := os.Create(filepath.Join(p.dir, "log"))
	must(p.T, err)
	cmd.Stdout, cmd.Stderr = log, log
	must(p.T, cmd.Start())
	p.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		log.Close()
		if text, err := os.ReadFile(log.Name()); p.Failed() {
			p.Logf("%s: %s %v", p.name, text, err)
		}
	})
	return cmd
}

// get asks the container's port of HTTP.
func (p *pod) get(scheme core.URIScheme, path, token string) (string, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(p.files["tls/ca.crt"]))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	request, err := http.NewRequest("GET", strings.ToLower(string(scheme))+"://"+p.http+path, nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != 200 {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

// awaitReady waits until the pod's probes hold.
func (p *pod) awaitReady() {
	p.Helper()
	for _, probe := range []*core.Probe{p.container.StartupProbe, p.container.LivenessProbe, p.container.ReadinessProbe} {
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			_, err := p.get(probe.HTTPGet.Scheme, probe.HTTPGet.Path, "")
			if err == nil {
				break
			} else if time.Now().After(end) {
				p.Fatalf("%s: %s: %v", p.name, probe.HTTPGet.Path, err)
			}
		}
	}
}

// Three pods with servers of their own form a cluster: all become ready, serve IDs, and one after the other may be
// replaced. Others join this NATS.
func TestPodsServe(t *testing.T) {
	tokens := map[string]string{"secrets/http-token": "ids", "secrets/http-admin-token": "all",
		"secrets/nats-password": "secret", "secrets/route-password": "1200"} // an unquoted 1200 is a number to nats-server
	t.Run("plain", func(t *testing.T) {
		pods := newPods(t, "{settings: {tag: [order]}}", tokens)
		serve(t, pods)
		url := pods[0].adapt.Replace("nats://ids-leafbus-0.ids-leafbus-nodes.shop.svc:4222")
		joined := newPods(t, rendered["password"], tokens, "nats://nats:4222", url)[0]
		for range 2 { // its folder is an emptyDir: a pod that is replaced has a new one
			run := joined.start()
			joined.awaitReady()
			must(t, run.Process.Signal(syscall.SIGTERM))
			must(t, run.Wait())
			must(t, os.RemoveAll(filepath.Join(joined.dir, "data")))
		}
	})
	t.Run("secured", func(t *testing.T) {
		files := certify(t)
		for file, text := range tokens {
			files[file] = text
		}
		users, err := os.ReadFile("../../deploy/nats/users.conf")
		must(t, err)
		placeholder := regexp.MustCompile(`KEY_OF_\w+`)
		files["secrets/users.conf"] = placeholder.ReplaceAllStringFunc(string(users), func(user string) string {
			pair, err := nkeys.CreateUser()
			must(t, err)
			seed, err := pair.Seed()
			must(t, err)
			if user == "KEY_OF_GENERATOR" {
				files["secrets/nkey"] = string(seed)
			}
			key, err := pair.PublicKey()
			must(t, err)
			return key
		})
		serve(t, newPods(t, "{settings: {tag: [order]}, "+rendered["secured"][1:], files))
	})
}

func serve(t *testing.T, pods []*pod) {
	var last *exec.Cmd
	for _, p := range pods {
		last = p.start()
	}
	for _, p := range pods {
		p.awaitReady()
	}
	p := pods[len(pods)-1]
	scheme := p.container.ReadinessProbe.HTTPGet.Scheme
	for path, token := range map[string]string{"/v1/segments/order": "ids", "/metrics": "all"} {
		if _, err := p.get(scheme, path, token); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	out, err := p.command(p.container.Lifecycle.PreStop.Exec.Command[1:]...).CombinedOutput()
	if err != nil {
		t.Errorf("the wait before a stop: %v: %s", err, out)
	}
	must(t, last.Process.Signal(syscall.SIGTERM))
	must(t, last.Wait())
	p.start()
	p.awaitReady()
}

// leaf serve takes each flag and setting of the chart, and reaches for the stores that they name.
func TestSettings(t *testing.T) {
	for _, row := range []struct{ values, missing string }{
		{rendered["joined"], "secrets/nkey"},
		{rendered["stores"], "secrets/creds"},
		{"{replicas: 1, mysql: {enabled: true}}", "127.0.0.1:1"},
		{"{replicas: 1, zookeeper: {hosts: '127.0.0.1:2'}}", "127.0.0.1:2"},
	} {
		p := newPods(t, row.values, map[string]string{"secrets/http-token": "ids", "secrets/http-admin-token": "all",
			"secrets/nats-password": "secret", "secrets/mysql-dsn": "leaf:secret@tcp(127.0.0.1:1)/leaf"})[0]
		out, err := p.command(append(p.container.Args, "--check", "--timeout=1s")...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), row.missing) {
			t.Errorf("with %s: %v, and nothing about %s: %s", row.values, err, row.missing, out)
		}
	}
}

// certify makes a certificate of this machine that has signed itself.
func certify(t *testing.T) map[string]string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	from := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, from, from, &key.PublicKey, key)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	return map[string]string{"tls/tls.crt": text, "tls/ca.crt": text,
		"tls/tls.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))}
}

// free returns an address at which nobody listens.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

func put(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
