//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// hangup is the signal that reloads the profile.
const hangup = syscall.SIGHUP

// drainSignal makes the server end when its requests have ended. However often it comes, it aborts nothing: mpirun passes it to every rank.
const drainSignal = syscall.SIGUSR1

// ownGroup makes a command the first process of a process group.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends the processes of a group.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// signalSelf sends a signal to this process.
func signalSelf(s syscall.Signal) { _ = syscall.Kill(syscall.Getpid(), s) }
