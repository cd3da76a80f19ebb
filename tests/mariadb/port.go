package mariadb

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// freeAddr is an address that nothing listens on. Its port is below those from
// which systems take one for whoever wants any, so that it is still free when
// a server that was killed is run again.
func freeAddr() (string, error) {
	var failures []error
	for range 50 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(10240+rand.IntN(32768-10240)))
		l, err := net.Listen("tcp", addr)
		if err == nil {
			return addr, l.Close()
		}
		failures = append(failures, err)
	}
	return "", errors.Join(failures...)
}
