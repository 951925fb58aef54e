package tokenizer

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// childError returns the error for a child that sent no reply. limited reports whether the child
// had set its memory limit; stderr is what Go, Rust or the loader wrote there.
func childError(err error, l limits, limited bool, stderr string) error {
	var exit *exec.ExitError
	switch {
	case errors.Is(err, errLongReply):
		return &TemplateError{KindOutput, 0, "the text is longer than the limit"}
	case !errors.As(err, &exit):
		kind := KindSandbox
		if transient(err) {
			kind = KindUnavailable
		}
		return &TemplateError{kind, 0, oneLine("the child process could not be started: " + err.Error())}
	case limited && (containsAny(stderr, outOfMemory) || signalOf(exit) == syscall.SIGSEGV):
		return &TemplateError{KindMemory, 0, fmt.Sprintf("rendering needs more than the limit of %d MiB", l.memory>>20)}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n")
	kind := KindSandbox
	if killed(signalOf(exit)) || !limited && containsAny(stderr, noStart) {
		kind = KindUnavailable
	}
	return &TemplateError{kind, 0, oneLine("the child process died (" + err.Error() + "): " + first)}
}

// outOfMemory lists the messages of a process that exceeded its limit of memory or stack.
var outOfMemory = []string{"memory allocation of", "out of memory", "cannot allocate memory", "pthread_create failed", "stack overflow", "SIGSEGV"}

// noStart lists the messages of a process that the system could not start.
var noStart = []string{"out of memory", "cannot allocate memory", "Cannot allocate memory", "pthread_create failed", "failed to create new OS thread", "Too many open files", "failed to map segment"}

func containsAny(s string, signs []string) bool {
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(s, sign) })
}

// transient reports whether starting a process may succeed a little later.
func transient(err error) bool {
	return slices.ContainsFunc([]error{
		syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM, syscall.EINTR, syscall.EIO, syscall.ETXTBSY,
	}, func(e error) bool { return errors.Is(err, e) })
}

// signalOf returns the signal that ended a process, -1 for none.
func signalOf(e *exec.ExitError) syscall.Signal {
	if w, is := e.Sys().(syscall.WaitStatus); is && w.Signaled() {
		return w.Signal()
	}
	return -1
}

// killed reports whether a signal came from outside: from an operator, or from a system that is
// short of memory.
func killed(s syscall.Signal) bool {
	return slices.Contains([]syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}, s)
}
