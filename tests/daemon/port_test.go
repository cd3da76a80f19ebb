package daemon

import (
	"errors"
	"fmt"
	"net"
	"testing"
)

func TestOnFreePorts(t *testing.T) {
	used := make(map[string]bool)
	err := OnFreePorts(3, func(addrs []string) error {
		for _, addr := range addrs {
			if used[addr] {
				t.Errorf("%s is used twice", addr)
			}
			used[addr] = true
			l, err := net.Listen("tcp", addr)
			if err != nil {
				return err
			}
			defer l.Close()
		}
		if len(used) < 6 {
			return fmt.Errorf("server: %w", ErrPortTaken)
		}
		return nil
	})
	if err != nil || len(used) != 6 {
		t.Errorf("%d addresses, %v", len(used), err)
	}

	calls, broken := 0, errors.New("broken")
	err = OnFreePorts(1, func([]string) error { calls++; return broken })
	if err != broken || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}
