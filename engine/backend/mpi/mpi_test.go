//go:build cgo && linux

package mpi

import (
	"fmt"
	"strings"
	"testing"
)

// TestSums: sums have the bits of package local's, in both formats.
func TestSums(t *testing.T) {
	t.Parallel()
	for _, ranks := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			t.Parallel()
			wantOK(t, "sums", ranks)
			wantOK(t, "sums, bf16", ranks)
		})
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	wantOK(t, "rows", 2)
	wantOK(t, "rows", 3)
}

// TestStages: two stages of two ranks. Once more without shared memory, as between hosts.
func TestStages(t *testing.T) {
	t.Parallel()
	wantOK(t, "stages", 4)
	wantOK(t, "stages", 4, "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo")
}

func TestAlone(t *testing.T) {
	t.Parallel()
	wantOK(t, "alone", 1)
}

// TestNilPointer: a nil pointer is Go's panic, not a signal to Open MPI's handlers.
func TestNilPointer(t *testing.T) {
	t.Parallel()
	wantOK(t, "nil pointer", 1)
}

// TestFailures: ranks that make different calls, and calls that wait, end with an error that names both sides.
func TestFailures(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		"other size": {
			"mpi: rank 0 calls all_reduce of 4 bytes (message 0), rank 1 all_reduce of 8 bytes (message 0)",
			"mpi: rank 1 calls all_reduce of 8 bytes (message 0), rank 0 all_reduce of 4 bytes (message 0)",
		},
		"other size, parts": {"mpi: rank 0 calls all_reduce of 4 bytes (message 1), rank 1 all_reduce", "rank 0 all_reduce of 4 bytes (message 1)"},
		"other op":          {"mpi: rank 0 calls all_reduce of 16 bytes (message 0), rank 1 all_gather", "rank 1 calls all_gather"},
		"other size, stage": {"ok", "mpi: stage 1 calls receive of 8 bytes (message 0), stage 0 send of 12 bytes (message 0)"},
		"bad calls":         {"mpi: the first of 2 stages receives", "mpi: the last of 2 stages sends"},
		"abort":             {"the device is gone", "ok"},
		"late broadcast":    {"ok", "broadcast waited 10ms for the other 1 processes of the launcher"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for r, got := range outcomes(t, name, 2) {
				if !strings.Contains(got, want[r]) {
					t.Errorf("rank %d: %s, want %q", r, got, want[r])
				}
			}
		})
	}
}
