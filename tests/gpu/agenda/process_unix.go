//go:build unix

package agenda

import (
	"os/exec"
	"syscall"
)

// whole has the process end with all that it started when its context ends: at once, or asked
// to, with WaitDelay for what it still has to say. The function ends what outlived it.
func whole(c *exec.Cmd, asked bool) (end func()) {
	how := syscall.SIGKILL
	if asked {
		how = syscall.SIGINT
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, how) }
	return func() {
		if c.Process != nil {
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // there may be none left
		}
	}
}
