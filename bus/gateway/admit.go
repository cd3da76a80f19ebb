package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const (
	// policy lets a page load nothing from other sites, and run only scripts of this server.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
	// Browsers keep a password for each realm.
	challenge         = `Basic realm="leaf", charset="UTF-8"`
	operatorChallenge = `Basic realm="leaf operators", charset="UTF-8"`
)

// The methods that paths answer.
var (
	methodsGET = []string{http.MethodGet, http.MethodHead}
	methodsV1  = []string{http.MethodGet, http.MethodHead, http.MethodPost}
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

// admit reports whether a request may be served, and refuses it if not.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	const how = ", as a bearer token or as the password of basic authentication"
	tokens, may, ids := s.cfg.Tokens(), s.rights(r), isOfIDs(r.URL.Path)
	methods := methodsGET
	if isV1(r) {
		methods = methodsV1
	}
	refused := func(status int, reason, text string) bool {
		w.Header().Set("Connection", "close") // it must not be held without a right, and a body must not be read
		refuse(w, r, status, reason, text)
		return false
	}
	switch {
	case !slices.Contains(methods, r.Method):
		allow := strings.Join(methods, ", ")
		w.Header().Set("Allow", allow)
		return refused(http.StatusMethodNotAllowed, "method_not_allowed",
			"this path answers only "+allow+": send changes over NATS")
	case r.ContentLength > maxBody || r.ContentLength < 0:
		return refused(http.StatusRequestEntityTooLarge, "body_too_large",
			"a request needs no body; the body may have at most "+strconv.Itoa(maxBody)+" bytes, and needs a Content-Length")
	case len(tokens.Callers) == 0 && s.cfg.TLS == nil && r.Host != s.addr && !isAddress(r.Host):
		return refused(http.StatusMisdirectedRequest, "bad_host",
			"without --http-token and TLS the Host must be an IP address or localhost: "+
				"otherwise a page of another site could point its own name to this address")
	case isHealth(r.URL.Path):
		if may == none {
			w.Header().Set("Connection", "close")
		}
	case ids && may == none:
		w.Header().Set("Www-Authenticate", challenge)
		return refused(http.StatusUnauthorized, "unauthorized", "send the token"+how)
	case ids && isForeign(r.Header):
		return refused(http.StatusForbidden, "cross_site", "pages of other sites must not take IDs")
	case !ids && may != operator && len(tokens.Operators) == 0:
		return refused(http.StatusForbidden, "forbidden",
			"this path is for operators, and no token opens it: start leaf serve with --http-admin-token-file")
	case !ids && may != operator:
		w.Header().Set("Www-Authenticate", operatorChallenge)
		return refused(http.StatusUnauthorized, "unauthorized", "this path is for operators: send their token"+how)
	}
	return true
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

// isHealth reports whether the path is a health check's. Many health checkers cannot send a token.
func isHealth(path string) bool {
	return path == "/healthz" || path == "/readyz" || strings.HasPrefix(path, "/readyz/")
}

// isOfIDs reports whether callers may ask for the path.
func isOfIDs(path string) bool {
	return strings.HasPrefix(path, v1Path) || strings.HasPrefix(path, leafPath) || path == decodePath
}

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
