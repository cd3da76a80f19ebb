package gateway

import (
	"net"
	"net/http"
	"sync"
)

// unused are connections on which no request has come. Browsers open them ahead, and
// [http.Server.Shutdown] would wait for 5 s for what they bring. The zero value is ready.
type unused struct{ conns sync.Map }

// note is for [http.Server.ConnState].
func (u *unused) note(c net.Conn, state http.ConnState) {
	if state == http.StateNew {
		u.conns.Store(c, nil)
	} else {
		u.conns.Delete(c)
	}
}

// close closes them.
func (u *unused) close() {
	u.conns.Range(func(c, _ any) bool {
		_ = c.(net.Conn).Close()
		return true
	})
}
