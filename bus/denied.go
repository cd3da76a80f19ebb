package bus

import (
	"errors"
	"strings"

	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/nats-io/nats.go"
)

// deafness is that the inbox of all requests was refused. It is subscribed to, and
// refused, but once a connection; later errors hide that one.
type deafness struct {
	err       error
	connected uint64 // which connection it was
}

// denied returns the denial of a publication since the connection's last error
// was before, or of the inbox of all requests; nil if there is none.
func (c *Client) denied(before error, of func(subject string) bool) error {
	connected := c.nc.Stats().Reconnects // before the error is read: it may be of an earlier connection, not of a later
	if d := c.deaf.Load(); d != nil && d.connected == connected {
		return d.err
	}
	if !errors.Is(c.nc.LastError(), nats.ErrPermissionViolation) {
		return nil
	}
	inbox := c.nc.NewRespInbox()
	if err := wire.InboxDenied(c.nc, nil, inbox[:strings.LastIndexByte(inbox, '.')]+".*"); err != nil {
		c.deaf.Store(&deafness{err, connected})
		return err
	}
	return wire.PublishDenied(c.nc, before, of)
}
