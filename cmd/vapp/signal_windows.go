package main

import "syscall"

// hangup is never sent on Windows, where only changes of the file reload the profile.
const hangup = syscall.SIGHUP
