//go:build !unix

package daemon

import "errors"

// Freeze needs a system that can stop a process.
func (p *Process) Freeze() error { return errors.ErrUnsupported }

// Thaw needs what Freeze needs.
func (p *Process) Thaw() error { return errors.ErrUnsupported }
