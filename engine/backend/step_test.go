package backend

import (
	"testing"
	"unsafe"
)

// TestRandom pins the sequence: the top 53 bits of SplitMix64. The first numbers of seed 0
// are in every implementation's tests.
func TestRandom(t *testing.T) {
	for pos, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f, 0xf88bb8a8724c81ec} {
		if got := Random(0, int32(pos)); got != float64(want>>11)/(1<<53) {
			t.Errorf("position %d draws %v, want %v", pos, got, float64(want>>11)/(1<<53))
		}
	}
	if Random(1, 0) == Random(2, 0) {
		t.Error("two seeds draw the same number")
	}
}

// TestCarve: SampleRow has the size that C code expects; buffers are aligned, complete and
// do not overlap.
func TestCarve(t *testing.T) {
	if n := unsafe.Sizeof(SampleRow{}); n != 80 {
		t.Errorf("SampleRow has %d bytes", n)
	}
	s := StepShape{Tokens: 5, Seqs: 3, Samples: 2, Vocab: 33, MaxPages: []int{7, 2}, Bias: 3, Logprobs: 4, Drafts: 2, Axes: 3}
	mem := make([]byte, s.SetBytes()+64)
	mem = mem[-uintptr(unsafe.Pointer(&mem[0]))&63:][:s.SetBytes()]
	st := s.Carve(mem)
	type buffer struct {
		at, bytes uintptr
	}
	var all []buffer
	add := func(at unsafe.Pointer, n, size int) { all = append(all, buffer{uintptr(at), uintptr(n * size)}) }
	for _, b := range [][]int32{st.Tokens, st.Positions, st.Seq, st.First, st.Pages[0], st.Pages[1], st.Rows} {
		add(unsafe.Pointer(&b[0]), len(b), 4)
	}
	add(unsafe.Pointer(&st.Sampling[0]), len(st.Sampling), 80)
	add(unsafe.Pointer(&st.Grammar[0]), len(st.Grammar), 4)
	add(unsafe.Pointer(&st.Allowed[0]), len(st.Allowed), 4)
	add(unsafe.Pointer(&st.Bias[0]), len(st.Bias), 8)
	for _, b := range [][]int32{st.Sampled, st.Status} {
		add(unsafe.Pointer(&b[0]), len(b), 4)
	}
	add(unsafe.Pointer(&st.Logprob[0]), len(st.Logprob), 4)
	add(unsafe.Pointer(&st.Rank[0]), len(st.Rank), 4)
	add(unsafe.Pointer(&st.TopIDs[0]), len(st.TopIDs), 4)
	add(unsafe.Pointer(&st.TopProbs[0]), len(st.TopProbs), 4)
	for _, b := range [][]int32{st.MRopePositions, st.Accepted, st.Drafts} {
		add(unsafe.Pointer(&b[0]), len(b), 4)
	}
	if len(st.MRopePositions) != 15 || len(st.Accepted) != 3 || len(st.Drafts) != 6 {
		t.Errorf("%d accepted, %d drafts", len(st.Accepted), len(st.Drafts))
	}
	s.Drafts = 0
	if st := s.Carve(mem); st.Accepted != nil || st.Drafts != nil {
		t.Error("there are buffers of proposals without any")
	}
	s.Verify = 2
	if st := s.Carve(mem); len(st.Accepted) != 3 || st.Drafts != nil {
		t.Errorf("%d accepted of proposals that the host makes, %d drafts", len(st.Accepted), len(st.Drafts))
	}
	end := uintptr(unsafe.Pointer(&mem[0]))
	for i, b := range all {
		if b.at%64 != 0 || b.at < end || b.bytes == 0 {
			t.Errorf("buffer %d has %d bytes at %#x, the one before ends at %#x", i, b.bytes, b.at, end)
		}
		end = b.at + b.bytes
	}
	s.Drafts = 2
	if last := uintptr(unsafe.Pointer(&mem[0])) + uintptr(s.SetBytes()); end > last || last-end >= 64 {
		t.Errorf("the last buffer ends at %#x, the set at %#x", end, last)
	}
	if len(st.Grammar) != 2*st.Words || st.Words != 2 || len(st.First) != 4 || len(st.Pages[0]) != 21 || len(st.Bias) != 6 || len(st.TopIDs) != 8 {
		t.Errorf("lengths: %+v", st)
	}
}
