//go:build !unix

package agenda

import "os/exec"

// whole does nothing: children of the process may outlive it.
func whole(*exec.Cmd, bool) (end func()) { return func() {} }
