package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/leafbus/leafbus/bus/embedded"
)

// serverWatch reports the health of the embedded NATS server. err and dead are nil if the
// generator joined a NATS.
type serverWatch struct {
	err  func() error // why the server does not keep its part of the state
	dead func() error // why only a restart of the process helps
	run  func(context.Context) error
}

// watchServer watches the server in this process; nil: there is none.
func watchServer(server *embedded.Server) serverWatch {
	if server == nil {
		return serverWatch{run: func(ctx context.Context) error { <-ctx.Done(); return nil }}
	}
	return serverWatch{
		err: server.Health,
		dead: func() error {
			if err := server.Health(); errors.Is(err, embedded.ErrRestart) {
				return err
			}
			return nil
		},
		run: func(ctx context.Context) error {
			if err := server.AwaitRestart(ctx); err != nil {
				return fmt.Errorf("this process ends so that its supervisor starts it again: %w", err)
			}
			return nil
		},
	}
}
