package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/bus/gateway"
)

// mostTokens is how many tokens of a kind are valid at a time: the old one and the new one.
const mostTokens = 2

// parseTokens reads the values of --http-token and --http-admin-token.
func parseTokens(callers, operators string) (t gateway.Tokens, err error) {
	var err1, err2 error
	t.Callers, err1 = splitTokens("--http-token", callers)
	t.Operators, err2 = splitTokens("--http-admin-token", operators)
	if err := errors.Join(err1, err2); err != nil {
		return t, err
	}
	if slices.ContainsFunc(t.Operators, func(token string) bool { return slices.Contains(t.Callers, token) }) {
		return t, errors.New("--http-token and --http-admin-token have the same token, " +
			"which would open the dashboard to callers: give operators another one")
	}
	return t, nil
}

// splitTokens reads the value of a flag, which has a token a line.
func splitTokens(flag, text string) (tokens []string, err error) {
	if text == "" {
		return nil, nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		token := strings.TrimRightFunc(line, unicode.IsSpace)
		if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("%s: an HTTP header cannot carry it: want ASCII without white space", flag)
		}
		tokens = append(tokens, token)
	}
	if len(tokens) > mostTokens {
		return nil, fmt.Errorf("%s has %d lines: want one token, or the old and the new one", flag, len(tokens))
	}
	return tokens, nil
}

// tokens follows the files of --http-token and --http-admin-token, if they come from files.
func (f *httpFlags) tokens(fs *pflag.FlagSet) (*reread[gateway.Tokens], error) {
	return newReread("the tokens of HTTP", func() (gateway.Tokens, error) {
		values := []string{f.token, f.adminToken}
		for i, name := range []string{"http-token", "http-admin-token"} {
			path := secretFrom(fs.Lookup(name))
			if path == "" {
				continue
			}
			var err error
			if values[i], err = readSecretFile(path); err != nil {
				return gateway.Tokens{}, fmt.Errorf("--%s-file: %w", name, err)
			}
		}
		return parseTokens(values[0], values[1])
	})
}

// certificate follows the files of --http-tlscert and --http-tlskey. Without them it returns nil.
func (f *httpFlags) certificate() (*reread[tls.Certificate], error) {
	if f.tlsCert == "" {
		return nil, nil
	}
	return newReread("the certificate of HTTP", func() (tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
		if err != nil {
			err = fmt.Errorf("--http-tlscert, --http-tlskey: %w", err)
		}
		return cert, err
	})
}
