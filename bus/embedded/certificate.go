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

// CheckCertificates returns until when the certificates of a configuration are valid, and for which hosts; nothing if
// it has none. What would keep clients or the other servers of the cluster from trusting one now is an error.
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

// checkCertificate checks the first certificate of a TLS configuration. With routes it is shown to other servers, which
// reach this one by the host of a route.
func checkCertificate(c *tls.Config, routes []*url.URL, now time.Time) (string, error) {
	if c == nil || len(c.Certificates) == 0 {
		return "", nil
	}
	cert, err := x509.ParseCertificate(c.Certificates[0].Certificate[0])
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", err)
	}
	uses := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if len(routes) > 0 {
		uses = append(uses, x509.ExtKeyUsageClientAuth) // a server is the client of the routes that it opens
	}
	lacks := func(use x509.ExtKeyUsage) bool {
		return len(cert.ExtKeyUsage) > 0 && !slices.Contains(cert.ExtKeyUsage, use) &&
			!slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageAny)
	}
	reached := func(route *url.URL) bool { return cert.VerifyHostname(route.Hostname()) == nil }
	names := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	hosts := strings.Join(names, " ")
	switch {
	case now.Before(cert.NotBefore):
		return "", fmt.Errorf("is not valid before %v", cert.NotBefore)
	case now.After(cert.NotAfter):
		return "", fmt.Errorf("ended at %v: make a new one", cert.NotAfter)
	case hosts == "":
		return "", fmt.Errorf("has no subjectAltName: make one with the names of this machine")
	case slices.ContainsFunc(uses, lacks):
		return "", fmt.Errorf("has not all of extendedKeyUsage serverAuth and clientAuth: make one with both")
	case len(routes) > 0 && !slices.ContainsFunc(routes, reached):
		return "", fmt.Errorf("is for %s, and no route leads there: make one with the name that is among the routes", hosts)
	}
	return fmt.Sprintf("valid until %s for %s", cert.NotAfter.Format(time.DateOnly), hosts), nil
}
