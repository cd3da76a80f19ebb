package daemon

import (
	"errors"

	"github.com/leafbus/leafbus/internal/testkit"
)

// ErrPortTaken is that of a server whose port another process has.
var ErrPortTaken = errors.New("the port is taken by another process")

// OnFreePorts calls start with n addresses that nothing listens on, and with
// others where it returns [ErrPortTaken]: another process can be faster than
// the server to take one.
func OnFreePorts(n int, start func(addrs []string) error) error {
	var err error
	for range 10 {
		var addrs []string
		if addrs, err = freeAddrs(n); err != nil {
			return err
		}
		if err = start(addrs); !errors.Is(err, ErrPortTaken) {
			return err
		}
	}
	return err
}

// freeAddrs holds each address until it has all, so that no two are the same.
func freeAddrs(n int) (addrs []string, err error) {
	for range n {
		l, err := testkit.Listen()
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}
