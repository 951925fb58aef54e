// Package mpi connects ranks that are processes by Open MPI, for the backends cpu and ref. It loads the library when
// Open is called: nothing of MPI is needed to build vapp, or to run it on one rank. Sums are in the order of ranks,
// whatever the number of values. It must not know what the values are, nor start processes: mpirun or srun does. Start
// reading at Open in world.go.
package mpi

import (
	"fmt"
	"time"

	"vapp.dev/engine/backend"
)

// name is this package's in errors.
const name = "mpi"

// Options are what Open needs to know.
type Options struct {
	// Library is a file or a name for the loader. "" is libmpi.so.40: the loader's, else where distributions keep it.
	Library string
	// Wait is how long MPI's calls for all processes may take: start, groups, Broadcast and end. 0 is DefaultWait.
	Wait time.Duration
	// Wire is how the terms of sums travel.
	Wire Wire
}

// DefaultWait is how long the start waits for the other ranks.
const DefaultWait = time.Minute

// Wire is the format in which AllReduce sends terms. Values of AllGather and Send travel as they are.
type Wire int

const (
	// F32 sends terms as they are.
	F32 Wire = iota
	// BF16 rounds each rank's terms to bf16, those of the rank itself too. Sums are f32, equal on all ranks.
	BF16
)

func (w Wire) String() string {
	if w == BF16 {
		return "bf16"
	}
	return "f32"
}

// LibraryError is why a library cannot be used. It wraps backend.ErrUnsupported.
type LibraryError struct {
	Library string // the file, or the name given to the loader
	Why     string
	Remedy  string
}

func (e *LibraryError) Error() string {
	return fmt.Sprintf("%s: %s: %s; %s", name, e.Library, e.Why, e.Remedy)
}

func (e *LibraryError) Unwrap() error { return backend.ErrUnsupported }

// CallError is an error that Open MPI returned.
type CallError struct {
	Call string // as MPI or Group names it
	Rank int    // of MPI_COMM_WORLD, -1 before it is known
	Host string
	Code int
	Text string // of MPI_Error_string
}

func (e *CallError) Error() string {
	return fmt.Sprintf("%s: rank %d on %s: %s: %s (code %d)", name, e.Rank, e.Host, e.Call, e.Text, e.Code)
}

// WaitError says that other processes did not make a call in time.
type WaitError struct {
	Call string
	Rank int // -1 before it is known
	Size int // processes of the launcher
	Host string
	Wait time.Duration
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("%s: rank %d on %s: %s waited %v for the other %d processes of the launcher; see whether all of them run and reach each other, or wait longer",
		name, e.Rank, e.Host, e.Call, e.Wait, max(e.Size-1, 0))
}

// MismatchError says that two ranks did not make the same call.
type MismatchError struct {
	Of         string // "rank" of a stage's tensor parallel ranks, or "stage"
	Rank, Peer int
	Call, Sent string // the rank's call and the peer's, with bytes and number of the message
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s: %s %d calls %s, %s %d %s", name, e.Of, e.Rank, e.Call, e.Of, e.Peer, e.Sent)
}
