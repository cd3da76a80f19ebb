//go:build !unix

package kit

import "errors"

// Freeze is for unix alone.
func (p *Process) Freeze() error { return errors.ErrUnsupported }

// Thaw is for unix alone.
func (p *Process) Thaw() error { return errors.ErrUnsupported }
