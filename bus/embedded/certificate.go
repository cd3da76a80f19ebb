package embedded

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// CheckCertificates returns until when the certificates of a configuration are valid, and for which
// hosts; nothing if it has none. What would keep clients or the other servers of the cluster from
// trusting one now is an error.
func CheckCertificates(cfg Config, now time.Time) (string, error) {
	opts, err := cfg.options()
	if err != nil {
		return "", err
	}
	var all []string
	for _, of := range []struct {
		whom   string
		config *tls.Config
		routes []*url.URL
	}{{"clients", opts.TLSConfig, nil}, {"routes", opts.Cluster.TLSConfig, opts.Routes}} {
		found, err := checkCertificate(of.config, of.routes, now)
		if err != nil {
			return "", fmt.Errorf("the certificate for %s %w", of.whom, err)
		}
		if found != "" && !slices.Contains(all, found) {
			all = append(all, found)
		}
	}
	return strings.Join(all, ", "), nil
}

// checkCertificate checks the first certificate of a TLS configuration. With routes it is shown to
// other servers, which reach this one by the host of a route.
func checkCertificate(c *tls.Config, routes []*url.URL, now time.Time) (string, error) {
	if c == nil || len(c.Certificates) == 0 || c.Certificates[0].Leaf == nil {
		return "", nil
	}
	cert := c.Certificates[0].Leaf
	names := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	hosts := strings.Join(names, " ")
	if hosts == "" {
		return "", fmt.Errorf("has no subjectAltName: make one with the names of this machine")
	}
	uses := map[string]x509.ExtKeyUsage{"serverAuth": x509.ExtKeyUsageServerAuth}
	if len(routes) > 0 {
		uses["clientAuth"] = x509.ExtKeyUsageClientAuth // a server is the client of the routes that it opens
	}
	itself := x509.NewCertPool()
	itself.AddCert(cert) // who has signed it is not known here
	for name, use := range uses {
		o := x509.VerifyOptions{Roots: itself, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use}}
		if _, err := cert.Verify(o); err != nil {
			return "", fmt.Errorf("is refused for %s: %w: make a new one", name, err)
		}
	}
	reached := func(route *url.URL) bool { return cert.VerifyHostname(route.Hostname()) == nil }
	if len(routes) > 0 && !slices.ContainsFunc(routes, reached) {
		return "", fmt.Errorf("is for %s, and no route leads there: make one with the name that is among the routes", hosts)
	}
	return fmt.Sprintf("valid until %s for %s", cert.NotAfter.Format(time.DateOnly), hosts), nil
}
