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

// Header values that all answers share: a value of its own would cost an allocation.
var (
	nosniff    = []string{"nosniff"}
	noStore    = []string{"no-store"}
	noReferrer = []string{"no-referrer"}
	deny       = []string{"DENY"}
	sameOrigin = []string{"same-origin"}
	// policy lets a page load nothing from other sites, and run only scripts of this server.
	policy = []string{"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"}
	challenge = []string{`Basic realm="leaf", charset="UTF-8"`}
)

// admit reports whether a request may be served, and refuses it if not.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, r, http.StatusMethodNotAllowed, "method_not_allowed", "only GET is served here: send changes over NATS")
	case r.ContentLength > maxBody || r.ContentLength < 0:
		w.Header().Set("Connection", "close") // otherwise the body must be read
		refuse(w, r, http.StatusRequestEntityTooLarge, "body_too_large", "a request needs no body; the body may have at most "+
			strconv.Itoa(maxBody)+" bytes, and needs a Content-Length")
	case s.cfg.Token == "" && s.cfg.TLS == nil && r.Host != s.addr && !isAddress(r.Host):
		refuse(w, r, http.StatusMisdirectedRequest, "bad_host", "without --http-token and TLS the Host must be an IP address or localhost: "+
			"otherwise a page of another site could point its own name to this address")
	case !s.authorized(r):
		w.Header().Set("Connection", "close") // callers without the token must not hold connections
		if isHealth(r.URL.Path) {
			return true
		}
		w.Header()["Www-Authenticate"] = challenge
		refuse(w, r, http.StatusUnauthorized, "unauthorized", "send the token: as a bearer token, or as the password of basic authentication")
	case (strings.HasPrefix(r.URL.Path, "/api/") || r.URL.Path == "/dashboard/audit") && isForeign(r.Header):
		refuse(w, r, http.StatusForbidden, "cross_site", "pages of other sites must neither take IDs nor start audits")
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

// isHealth reports whether the path is a health check's. Many health checkers cannot send a
// token.
func isHealth(path string) bool {
	return path == "/healthz" || path == "/readyz" || strings.HasPrefix(path, "/readyz/")
}

// authorized reports whether a request has the token, or needs none.
func (s *Server) authorized(r *http.Request) bool {
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
	// Sums, because comparing the texts would reveal the token's length.
	sum := sha256.Sum256([]byte(shown))
	return subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1
}
