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
	// Browsers keep a password for each realm.
	challenge         = []string{`Basic realm="leaf", charset="UTF-8"`}
	operatorChallenge = []string{`Basic realm="leaf operators", charset="UTF-8"`}
)

// Tokens are the secrets that open the server: sent as a bearer token, or as the password of basic
// authentication. Of each kind there may be several, so that they can be replaced one by one.
// Health checks need none.
type Tokens struct {
	// Callers open the paths of IDs. Empty: callers need no token.
	Callers []string
	// Operators open everything. Empty: the other paths are open if callers need no token either
	// and only this machine can reach the server. Else they are closed.
	Operators []string
}

// rights are what the sender of a request may do.
type rights int

const (
	none     rights = iota
	caller          // take and decode IDs
	operator        // everything
)

// rights returns what a request may do by its token, or without one.
func (s *Server) rights(r *http.Request) rights {
	tokens, shown := s.cfg.Tokens(), tokenOf(r)
	open := len(tokens.Callers) == 0
	switch {
	case contains(tokens.Operators, shown), open && len(tokens.Operators) == 0 && s.local:
		return operator
	case open, contains(tokens.Callers, shown):
		return caller
	}
	return none
}

// how to send a token.
const how = ", as a bearer token or as the password of basic authentication"

// admit reports whether a request may be served, and refuses it if not.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	tokens := s.cfg.Tokens()
	ids, may := isOfIDs(r.URL.Path), s.rights(r)
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead && !(r.Method == http.MethodPost && isV1(r)):
		allow := "GET, HEAD"
		if isV1(r) {
			allow = "GET, HEAD, POST"
		}
		w.Header().Set("Allow", allow)
		refuse(w, r, http.StatusMethodNotAllowed, "method_not_allowed",
			"this path answers only "+allow+": send changes over NATS")
	case r.ContentLength > maxBody || r.ContentLength < 0:
		w.Header().Set("Connection", "close") // otherwise the body must be read
		refuse(w, r, http.StatusRequestEntityTooLarge, "body_too_large",
			"a request needs no body; the body may have at most "+strconv.Itoa(maxBody)+" bytes, and needs a Content-Length")
	case len(tokens.Callers) == 0 && s.cfg.TLS == nil && r.Host != s.addr && !isAddress(r.Host):
		refuse(w, r, http.StatusMisdirectedRequest, "bad_host",
			"without --http-token and TLS the Host must be an IP address or localhost: "+
				"otherwise a page of another site could point its own name to this address")
	case isHealth(r.URL.Path):
		if may == none {
			w.Header().Set("Connection", "close") // without a token, a connection must not be held
		}
		return true
	case ids && may == none:
		w.Header().Set("Connection", "close")
		w.Header()["Www-Authenticate"] = challenge
		refuse(w, r, http.StatusUnauthorized, "unauthorized", "send the token"+how)
	case !ids && may != operator && len(tokens.Operators) == 0:
		w.Header().Set("Connection", "close")
		refuse(w, r, http.StatusForbidden, "forbidden", "this path is for operators, and no token opens it: "+
			"start leaf serve with --http-admin-token-file")
	case !ids && may != operator:
		w.Header().Set("Connection", "close")
		w.Header()["Www-Authenticate"] = operatorChallenge
		refuse(w, r, http.StatusUnauthorized, "unauthorized", "this path is for operators: send their token"+how)
	case ids && isForeign(r.Header):
		refuse(w, r, http.StatusForbidden, "cross_site", "pages of other sites must not take IDs")
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

// isOfIDs reports whether callers may ask for the path.
func isOfIDs(path string) bool {
	return strings.HasPrefix(path, v1Path) || strings.HasPrefix(path, "/api/") || path == decodePath
}

// isV1 reports whether a request is for a path of /v1.
func isV1(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, v1Path) }

// tokenOf returns the token that a request shows; empty: none.
func tokenOf(r *http.Request) string {
	scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		_, shown, _ = r.BasicAuth()
	}
	return shown
}

// contains reports whether shown is one of the tokens.
func contains(tokens []string, shown string) bool {
	// Sums, because comparing the texts would reveal a token's length.
	sum, found := sha256.Sum256([]byte(shown)), 0
	for _, token := range tokens {
		one := sha256.Sum256([]byte(token))
		found |= subtle.ConstantTimeCompare(sum[:], one[:])
	}
	return found == 1
}
