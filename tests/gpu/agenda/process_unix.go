//go:build unix

package agenda

import (
	"os/exec"
	"syscall"
)

// whole makes the end of the context end the process with all its children: at once, or with asked
// set, by an interrupt and WaitDelay for its last output. The returned function kills the children
// that remain.
func whole(c *exec.Cmd, asked bool) (end func()) {
	how := syscall.SIGKILL
	if asked {
		how = syscall.SIGINT
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, how) }
	return func() {
		if c.Process != nil {
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // fails where none remain
		}
	}
}
