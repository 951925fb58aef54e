package main

import "syscall"

// hangup never comes on Windows: the profile is watched there too.
const hangup = syscall.SIGHUP
