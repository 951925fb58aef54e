package nccl

import (
	"errors"
	"fmt"
	"time"
)

// ErrNotBuilt is the error of a binary without the tag cuda.
var ErrNotBuilt = errors.New("this binary was built without CUDA: build it with make build CUDA=1")

// Need is the oldest supported NCCL, in its own numbering: 21803 is 2.18.3. It is the first one
// that splits a communicator.
const Need = 21800

// NoLibrary means that NCCL is missing, lacks a function or is another library.
type NoLibrary struct{ Why string }

func (e *NoLibrary) Error() string {
	return fmt.Sprintf("no NCCL (%s): install NVIDIA's NCCL %s or newer (the package libnccl2, or the wheel nvidia-nccl-cu13), or name its libnccl.so.2 in VAPP_LIBNCCL", e.Why, version(Need))
}

// TooOld means that NCCL is older than Need.
type TooOld struct{ Have int }

func (e *TooOld) Error() string {
	return fmt.Sprintf("NCCL is %s and %s is needed: install NVIDIA's NCCL anew (the package libnccl2, or the wheel nvidia-nccl-cu13), or name a newer libnccl.so.2 in VAPP_LIBNCCL", version(e.Have), version(Need))
}

// version formats a version: 21803 is "2.18.3".
func version(n int) string { return fmt.Sprintf("%d.%d.%d", n/10000, n/100%100, n%100) }

// LateError means that not all ranks have joined in time.
type LateError struct {
	Rank   string // "rank 1 of 4"
	Waited time.Duration
}

func (e *LateError) Error() string {
	return fmt.Sprintf("%s: not all ranks have joined within %v: look at the logs of the others, and whether their hosts reach each other (NCCL_DEBUG=INFO, NCCL_SOCKET_IFNAME)", e.Rank, e.Waited)
}

// Error is the error of a failed call of NCCL, or of a communicator.
type Error struct {
	Rank   string // "rank 1 of 4"
	Call   string // "ncclCommInitRank"; "" for an error of the communicator
	Code   int    // ncclResult_t
	Name   string // "remote process exited or there was a network error"
	Detail string // what the library adds, or ""
}

func (e *Error) Error() string {
	s := e.Rank
	if e.Call != "" {
		s += ": " + e.Call
	}
	s += ": NCCL: " + e.Name
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s + ": " + remedies[min(max(e.Code, 0), len(remedies)-1)]
}

// remedies by code.
var remedies = [...]string{
	0: "restart all ranks",
	1: "a call of CUDA failed: look for Xid in the kernel's log (dmesg), and restart all ranks with NCCL_DEBUG=WARN",
	2: "a call of the system failed: restart all ranks with NCCL_DEBUG=WARN; containers need --shm-size or --ipc=host",
	3: "restart all ranks with NCCL_DEBUG=WARN, and report this line with what it adds",
	4: "an argument was refused: a defect of vapp; report this line",
	5: "the ranks do not agree: each needs a GPU of its own (CUDA_VISIBLE_DEVICES), the same profile and the same version",
	6: "another rank has ended or cannot be reached: look at the logs of the others, and restart all ranks",
	7: "restart all ranks with NCCL_DEBUG=WARN",
}
