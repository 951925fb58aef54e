// Package cost predicts how long launches of the CUDA kernels take. It counts bytes and operations from a
// launch's arguments, and instructions from the kernels' machine code (code.tsv), and divides them by the rates of
// a GPU (rates.go). Where a block's warps meet in the loop that multiplies, it also follows one block through the steps of that code (GPU.turn in
// time.go): what waits takes its time beside nothing. Nothing here was measured with these kernels: gpu-check is what compares predictions with a device.
//
// It must not import a backend, read a clock or open a device: equal launches give equal times. Start reading at
// Counter.Count in count.go, then GPU.Time in time.go.
package cost

import (
	"fmt"

	"vapp.dev/kernels/cuda"
)

// Launch is a kernel launch with its arguments, as a backend makes it for the rows of a step.
type Launch struct {
	Op      int    // index of the program's op that it belongs to
	Kernel  string // as in cuda.Catalogue
	Blocks  [3]int
	Threads int                  // of a block
	Args    []byte               // the kernel's struct
	Pieces  cuda.AttentionPieces // of attention by a list; else zero
}

// blocks returns the number of blocks.
func (l Launch) blocks() float64 {
	return float64(l.Blocks[0]) * float64(l.Blocks[1]) * float64(l.Blocks[2])
}

// Row is one sequence's part of a step: positions From to From+Count−1.
type Row struct{ From, Count int }

// Work is what a launch does.
type Work struct {
	Weights float64 // bytes read, each once
	KV      float64 // bytes of keys, values and states, each once, read and written
	Values  float64 // bytes of activations, read and written
	Flops   float64 // by the shapes of the operands
	// Issued are the operations of the units that Code names, of whole tiles: at least Flops where it has tiles.
	Issued       float64
	Code         Code
	Instructions float64 // that warps issue
	Turns        float64 // of the loop that multiplies, of all warps of a block together
	RowTurns     float64 // of each loop of a warp that shares a row with the others of its block; 0: they are known by the bytes
	HalfTurns    float64 // those among them of blocks that multiply by half of their rows, with the code Half
	Half         Code
	Tiles        float64 // of keys and values that warps load for others
	LoadTurns    float64 // of their loop, for a tile
	Warps        float64 // of a block, without those that load for others
	Block        Block
	Blocks       float64 // that have work
	Pieces       float64 // of work that blocks take one after the other; 0: each has one
	Behind       float64 // turns by which a block's second warpgroup follows the first at least: then one ends a piece while the other multiplies
	// Dependent: the launch is behind a kernel of the same list, which need not have ended when it begins.
	Dependent  bool
	Prefetched float64 // bytes of Weights that a dependent launch prefetches before it waits
	// Longest is the share of the block with the most work in that of all blocks, times Blocks: 1 if they are equal.
	Longest float64
}

// Block is what a block needs.
type Block struct {
	Warps  int
	Shared int // bytes of shared memory
}

// Bytes returns all bytes.
func (w Work) Bytes() float64 { return w.Weights + w.KV + w.Values }

// UnknownKernelError reports a kernel without a rule or without machine code that was counted.
type UnknownKernelError struct{ Kernel, Why string }

func (e *UnknownKernelError) Error() string {
	return fmt.Sprintf("cost: kernel %s: %s", e.Kernel, e.Why)
}
