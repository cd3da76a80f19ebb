// Package idspace has what the client and the generators share: ranges of IDs, and the rule for
// names of tags. It needs the standard library alone.
package idspace
