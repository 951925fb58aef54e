package ranks

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"vapp.dev/engine/backend"
)

// A block is the payload of launch: a header of 40 bytes (the step's number, set, counts and graph), and then the used part of each input
// of the step buffers, in the order of backend.Step. All numbers are little endian. Of a page table the
// entries behind the last page are left out, and of the masks and biases all rows that no sampled row uses.
const blockHeader = 8 + 8*4

// Shape says how large the step buffers of a rank are.
type Shape struct {
	Step backend.StepShape
	// Classes are the KV classes of the whole pipeline; Own has the index of each in this rank's
	// buffers, −1 where its stage lacks the class.
	Classes int
	Own     []int
	// Encoder is the shape of the rank's encoder; zero in stages without one: their tokens have no encoded rows.
	Encoder backend.EncoderShape
}

// ShapeOf returns the shape of a rank's buffers. The pipeline has this number of classes, and classOf has the index among them of each
// class of the rank.
func ShapeOf(step backend.StepShape, classOf []int, classes int, encoder backend.EncoderShape) Shape {
	s := Shape{Step: step, Classes: classes, Own: make([]int, classes), Encoder: encoder}
	for i := range s.Own {
		s.Own[i] = slices.Index(classOf, i)
	}
	return s
}

// counts returns the rows of a launch, padding included.
func counts(b backend.Binding) (tokens, seqs, samples int) {
	return max(b.Tokens, b.Graph.Tokens), max(b.Seqs, b.Graph.Seqs), max(b.Samples, b.Graph.Samples)
}

// appendBlock appends the block of a launch on s, the buffers of the whole pipeline.
func appendBlock(out []byte, number uint64, s *backend.Step, b backend.Binding) []byte {
	t, q, l := counts(b)
	out = binary.LittleEndian.AppendUint64(out, number)
	for _, n := range []int{b.Set, b.Tokens, b.Seqs, b.Samples, int(b.Graph.Kind), b.Graph.Tokens, b.Graph.Seqs, b.Graph.Samples} {
		out = binary.LittleEndian.AppendUint32(out, uint32(n))
	}
	for _, v := range [][]int32{s.Tokens[:t], s.Positions[:t], s.Seq[:t], s.First[:q+1]} {
		out = appendRaw(out, v)
	}
	for _, table := range s.Pages {
		width := len(table) / (len(s.First) - 1)
		for i := range q {
			row := table[i*width : (i+1)*width]
			n := len(row)
			for n > 0 && row[n-1] == -1 {
				n--
			}
			out = appendRaw(binary.LittleEndian.AppendUint32(out, uint32(n)), row[:n])
		}
	}
	out = appendRaw(out, s.Rows[:l])
	if len(s.Sampling) > 0 {
		out = appendRaw(out, s.Sampling[:l])
		for i := range s.Sampling[:l] {
			r := &s.Sampling[i]
			if r.Flags&backend.UseGrammar != 0 {
				out = appendRaw(out, s.Grammar[i*s.Words:(i+1)*s.Words])
			}
			if r.Flags&backend.UseAllowed != 0 {
				out = appendRaw(out, s.Allowed[i*s.Words:(i+1)*s.Words])
			}
			width := len(s.Bias) / len(s.Sampling)
			out = appendRaw(out, s.Bias[i*width:i*width+int(r.NumBias)])
		}
	}
	if n := len(s.MRopePositions); n > 0 {
		out = appendRaw(out, s.MRopePositions[:t*n/len(s.Tokens)])
	}
	if s.Adapters != nil {
		out = appendRaw(out, s.Adapters[:t])
	}
	if s.Encoded != nil {
		out = appendRaw(appendRaw(out, s.Encoded[:t]), s.ItemEnd[:t])
	}
	if s.EncodedNext != nil {
		out = appendRaw(out, s.EncodedNext[:t])
	}
	return out
}

// block reads a payload from its beginning.
type block struct {
	b   []byte
	err error
}

// readHeader returns the number and the binding of a block for buffers of a shape.
func (s Shape) readHeader(payload []byte) (number uint64, b backend.Binding, rest block, err error) {
	if len(payload) < blockHeader {
		return 0, b, rest, &FrameError{fmt.Sprintf("a step of %d bytes is shorter than its header", len(payload))}
	}
	var n [8]int
	for i := range n {
		n[i] = int(binary.LittleEndian.Uint32(payload[8+4*i:]))
	}
	b = backend.Binding{Set: n[0], Tokens: n[1], Seqs: n[2], Samples: n[3], Graph: backend.Graph{Kind: backend.GraphKind(n[4]), Tokens: n[5], Seqs: n[6], Samples: n[7]}}
	t, q, l := counts(b)
	if s.Step.CheckSet(b.Set) != nil || n[4] > int(backend.Decode) || t > s.Step.Tokens || q > s.Step.Seqs || l > s.Step.Samples {
		return 0, b, rest, &FrameError{fmt.Sprintf("a step on set %d of %d tokens, %d sequences, %d sampled rows exceeds the buffers of %d, %d, %d", n[0], t, q, l, s.Step.Tokens, s.Step.Seqs, s.Step.Samples)}
	}
	return binary.LittleEndian.Uint64(payload), b, block{b: payload[blockHeader:]}, nil
}

// read fills the rank's buffers from what follows the header.
func (s Shape) read(r block, to *backend.Step, b backend.Binding) error {
	t, q, l := counts(b)
	take(&r, to.Tokens[:t])
	take(&r, to.Positions[:t])
	take(&r, to.Seq[:t])
	take(&r, to.First[:q+1])
	for class := range s.Classes {
		var table []int32
		if own := s.Own[class]; own >= 0 {
			table = to.Pages[own]
		}
		r.tables(table, s.width(table), q)
	}
	take(&r, to.Rows[:l])
	if len(to.Sampling) > 0 {
		take(&r, to.Sampling[:l])
		for i := range to.Sampling[:l] {
			r.edits(to, i)
		}
	}
	if n := len(to.MRopePositions); n > 0 {
		take(&r, to.MRopePositions[:t*n/len(to.Tokens)])
	}
	if to.Adapters != nil {
		take(&r, to.Adapters[:t])
	}
	if to.Encoded != nil {
		take(&r, to.Encoded[:t])
		take(&r, to.ItemEnd[:t])
	}
	if to.EncodedNext != nil {
		take(&r, to.EncodedNext[:t])
	}
	if s.Encoder.Rows == 0 {
		none(to.Encoded, t)
		none(to.EncodedNext, t)
	}
	if r.err == nil && len(r.b) > 0 {
		r.err = &FrameError{fmt.Sprintf("%d bytes follow a step", len(r.b))}
	}
	return r.err
}

// none says of t tokens that they have no encoded row; rows may be nil.
func none(rows []int32, t int) {
	for i := range min(t, len(rows)) {
		rows[i] = -1
	}
}

func (s Shape) width(table []int32) int { return len(table) / s.Step.Seqs }

// tables reads the page tables of one class; table is nil if the rank lacks the class.
func (r *block) tables(table []int32, width, seqs int) {
	for i := range seqs {
		n := r.count()
		if table == nil {
			r.skip(n, 4)
			continue
		}
		if n > width {
			r.fail("a page table of %d entries, at most %d", n, width)
			return
		}
		row := table[i*width : (i+1)*width]
		take(r, row[:n])
		for k := n; k < width; k++ {
			row[k] = -1
		}
	}
}

// edits reads the masks and biases of sampled row i.
func (r *block) edits(to *backend.Step, i int) {
	row := &to.Sampling[i]
	if row.Flags&backend.UseGrammar != 0 {
		take(r, to.Grammar[i*to.Words:(i+1)*to.Words])
	}
	if row.Flags&backend.UseAllowed != 0 {
		take(r, to.Allowed[i*to.Words:(i+1)*to.Words])
	}
	width := len(to.Bias) / len(to.Sampling)
	if row.NumBias < 0 || int(row.NumBias) > width {
		r.fail("%d biases of a row, at most %d", row.NumBias, width)
		return
	}
	take(r, to.Bias[i*width:i*width+int(row.NumBias)])
}

func (r *block) fail(format string, args ...any) {
	if r.err == nil {
		r.err = &FrameError{fmt.Sprintf(format, args...)}
	}
	r.b = nil
}

// count reads a number of elements.
func (r *block) count() int {
	if len(r.b) < 4 {
		r.fail("a step ends in the middle")
		return 0
	}
	n := binary.LittleEndian.Uint32(r.b)
	r.b = r.b[4:]
	if n > math.MaxInt32 {
		r.fail("%d elements", n)
		return 0
	}
	return int(n)
}

// skip passes n elements of a size.
func (r *block) skip(n, size int) {
	if len(r.b)/size < n {
		r.fail("a step ends in the middle")
		return
	}
	r.b = r.b[n*size:]
}

// take fills to from the block.
func take[T any](r *block, to []T) {
	raw := bytesOf(to)
	if len(r.b) < len(raw) {
		r.fail("a step ends in the middle")
		return
	}
	copy(raw, r.b)
	r.b = r.b[len(raw):]
}

func appendRaw[T any](out []byte, v []T) []byte { return append(out, bytesOf(v)...) }

// bytesOf returns the memory of a slice of numbers.
func bytesOf[T any](v []T) []byte {
	var z T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(z)))
}

// appendOutputs appends what the last stage has sampled in a launch: the step's number and the used part of each
// output.
func appendOutputs(out []byte, number uint64, s *backend.Step, b backend.Binding) []byte {
	out = binary.LittleEndian.AppendUint64(out, number)
	eachOutput(s, b, func(v []byte) { out = append(out, v...) })
	return out
}

// readOutputs fills the outputs of s from a payload behind the number.
func readOutputs(payload []byte, s *backend.Step, b backend.Binding) error {
	r := block{b: payload}
	eachOutput(s, b, func(v []byte) { take(&r, v) })
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes follow the outputs of a step", len(r.b))
	}
	return r.err
}

// eachOutput calls f with the memory of each output that a launch writes.
func eachOutput(s *backend.Step, b backend.Binding, f func([]byte)) {
	l := b.Samples
	if n := len(s.Outputs); n > 0 {
		f(bytesOf(s.Outputs[:l*n/len(s.Rows)]))
		return
	}
	f(bytesOf(s.Sampled[:l]))
	f(bytesOf(s.Status[:l]))
	f(bytesOf(s.Logprob[:l]))
	f(bytesOf(s.Rank[:l]))
	if n := len(s.TopIDs); n > 0 {
		w := n / len(s.Sampled)
		for i := range s.Sampling[:l] {
			if s.Sampling[i].Flags&backend.WantLogprob != 0 {
				top := min(w, max(0, int(s.Sampling[i].NumTop)))
				f(bytesOf(s.TopIDs[i*w : i*w+top]))
				f(bytesOf(s.TopProbs[i*w : i*w+top]))
			}
		}
	}
	if s.Accepted != nil {
		f(bytesOf(s.Accepted[:b.Seqs]))
	}
	if n := len(s.Drafts); n > 0 {
		f(bytesOf(s.Drafts[:b.Seqs*n/(len(s.First)-1)]))
	}
}
