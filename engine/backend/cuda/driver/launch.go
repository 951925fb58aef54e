package driver

import "fmt"

// Symbol is a number of a Launch that is known when its List runs: the bound number Of, times
// Times, divided by Over and rounded up, plus Plus.
type Symbol struct {
	Of                int // index of the bound number, below NumBound
	At                int // byte offset of an int32 in Args (an int64 takes one below 2³¹); -1: the blocks in dimension Dim
	Dim               int
	Times, Over, Plus int32
}

// NumBound is the number of bound numbers of a List.
const NumBound = 8

// Attributes are the properties of a compiled kernel.
type Attributes struct {
	MaxThreads int // maximum for a block
	Registers  int // registers of a thread
	Shared     int // bytes of static shared memory
	Local      int // bytes of local memory of a thread: spills and arrays
	SharedMax  int // most bytes of dynamic shared memory of a launch
}

// check returns what is wrong with a launch's shape and symbols, or nil.
func check(blocks, threads [3]int, shared, args int, symbols []Symbol) error {
	for d := range 3 {
		most := 65535
		if d == 0 {
			most = 1<<31 - 1
		}
		if blocks[d] < 0 || blocks[d] > most || threads[d] < 1 || threads[d] > 1024 {
			return fmt.Errorf("%d blocks of %d threads in dimension %d", blocks[d], threads[d], d)
		}
	}
	if threads[0]*threads[1]*threads[2] > 1024 || shared < 0 {
		return fmt.Errorf("blocks of %v threads with %d bytes of shared memory", threads, shared)
	}
	for _, s := range symbols {
		if s.Of < 0 || s.Of >= NumBound || s.Over < 1 || s.At < -1 || s.At > args-4 || s.At == -1 && (s.Dim < 0 || s.Dim > 2) || s.At > 0 && s.At%4 != 0 {
			return fmt.Errorf("symbol %+v of %d bytes of arguments", s, args)
		}
	}
	return nil
}
