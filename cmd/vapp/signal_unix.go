//go:build unix

package main

import "syscall"

// hangup is the signal that reloads the profile.
const hangup = syscall.SIGHUP
