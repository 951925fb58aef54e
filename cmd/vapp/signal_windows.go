package main

import (
	"os"
	"os/exec"
	"syscall"
)

// hangup is never sent on Windows, where only changes of the file reload the profile.
const hangup = syscall.SIGHUP

// drainSignal is never sent on Windows.
const drainSignal = syscall.Signal(10)

// No backend runs ranks on Windows; these exist so that the commands compile.

func ownGroup(*exec.Cmd) {}

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

func signalSelf(syscall.Signal) { os.Exit(1) }
