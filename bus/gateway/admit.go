package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// The values of headers that all answers share: one that is set by a value of its own
// costs an allocation.
var (
	nosniff    = []string{"nosniff"}
	noStore    = []string{"no-store"}
	noReferrer = []string{"no-referrer"}
	deny       = []string{"DENY"}
	sameOrigin = []string{"same-origin"}
	// policy lets a page load nothing from elsewhere, and run no script but its own files.
	policy = []string{"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"}
	challenge = []string{`Basic realm="leaf", charset="UTF-8"`}
)

// admit reports whether a request may be looked at, and answers it if not.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, r, http.StatusMethodNotAllowed, "method_not_allowed", "only GET is served here: what changes something goes over NATS")
	case r.ContentLength > maxBody || r.ContentLength < 0:
		w.Header().Set("Connection", "close") // or it would have to be read
		refuse(w, r, http.StatusRequestEntityTooLarge, "body_too_large", "a request needs no body, and may have one of "+
			strconv.Itoa(maxBody)+" bytes of a length that it tells")
	case s.cfg.Token == "" && s.cfg.TLS == nil && r.Host != s.addr && !isAddress(r.Host):
		refuse(w, r, http.StatusMisdirectedRequest, "bad_host", "without --http-token and TLS only an IP address or localhost is served as host: "+
			"a page from elsewhere could give its own name this address")
	case !s.knows(r):
		w.Header().Set("Connection", "close") // who shows no token is not to hold on to one
		if isHealth(r.URL.Path) {
			return true
		}
		w.Header()["Www-Authenticate"] = challenge
		refuse(w, r, http.StatusUnauthorized, "unauthorized", "the token is wanted: as a bearer token, or as the password of basic authentication")
	case strings.HasPrefix(r.URL.Path, "/api/") && isForeign(r.Header):
		refuse(w, r, http.StatusForbidden, "cross_site", "a page of another site asked for this: it is not to take IDs")
	default:
		return true
	}
	return false
}

// isAddress reports whether a request's Host is one that no DNS server can point here.
func isAddress(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(host)
	if host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

// isForeign reports whether a browser says that a page of another site made the request.
func isForeign(h http.Header) bool {
	site := h["Sec-Fetch-Site"]
	return len(site) > 0 && site[0] != "same-origin" && site[0] != "none"
}

// isHealth reports whether the path is a health check's. Whoever checks health often
// cannot show a token.
func isHealth(path string) bool {
	return path == "/healthz" || path == "/readyz" || strings.HasPrefix(path, "/readyz/")
}

// knows reports whether a request shows the token, or none is wanted.
func (s *Server) knows(r *http.Request) bool {
	if s.cfg.Token == "" {
		return true
	}
	scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		var ok bool
		if _, shown, ok = r.BasicAuth(); !ok {
			return false
		}
	}
	// Sums, because a comparison tells how long the token is.
	a, b := sha256.Sum256([]byte(shown)), sha256.Sum256([]byte(s.cfg.Token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
