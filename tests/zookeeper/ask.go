package zookeeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
)

// notServing is all that a server answers before it serves clients.
const notServing = "This ZooKeeper instance is not currently serving requests"

// errNotServing is that of a server that has answered so.
var errNotServing = errors.New("it does not serve requests yet")

// ask sends a server one of its commands of four letters, and is nil if the
// answer has a certain line. It does not read on: a server that has just started
// now and then leaves the connection open after it said [notServing].
func ask(ctx context.Context, addr, command, line string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(conn, command); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		switch lines.Text() {
		case line:
			return nil
		case notServing:
			return errNotServing
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%s does not answer %s with %q", addr, command, line)
}
