package ranks

import (
	"encoding/binary"
	"fmt"
	"slices"

	"vapp.dev/engine/backend"
)

// Items of all ranks of the stages that read encoded rows: the first one, and the last one if a head of the model itself
// drafts there. Rank 0 sends an item before it encodes it. Its bytes travel in frames of a bounded size, so that no rank
// has memory for them but its Item arena.

// ItemFrame is the size of the frames in which an item's bytes travel, and ItemBuffers the most of
// them that a rank holds at a time.
const (
	ItemFrame   = 256 << 10
	ItemBuffers = queued + 2 // one is read, one is handled
)

// parts returns the memory of an item's input, in the order in which it travels.
func parts(in *backend.ItemInput, patches int) [][]byte {
	cols := len(in.Pixels) / len(in.Across)
	return [][]byte{bytesOf(in.Colours), in.Pixels[:patches*cols], bytesOf(in.Across[:patches]), bytesOf(in.Down[:patches])}
}

var _ backend.Encoder = (*Device)(nil)

// Item returns the buffers of rank 0's device; nil if it has no encoder.
func (d *Device) Item() *backend.ItemInput {
	if e, ok := d.Device.(backend.Encoder); ok {
		return e.Item()
	}
	return nil
}

// encoding returns the other ranks of the stages that encode: see above.
func (l *Leader) encoding(p Places, drafts bool) []*peer {
	out := slices.Clone(l.peers[1:p.Tensor])
	if drafts && p.Pipeline > 1 {
		out = append(out, l.peers[p.last():]...)
	}
	return out
}

// Encode sends the item to the other ranks that encode and starts its encoding on all of them.
func (d *Device) Encode(x backend.Executable, b backend.EncodeBinding) error {
	e, in := d.Device.(backend.Encoder), d.Item()
	if in == nil || b.Patches < 1 || b.Patches > len(in.Across) {
		return d.fail(&backend.StepError{Field: "EncodeBinding.Patches", Why: fmt.Sprintf("%d, and rank 0's device has buffers of %d", b.Patches, in.Most())})
	}
	d.buf = d.buf[:0]
	for _, n := range []int{b.Patches, b.Rows, int(b.At)} {
		d.buf = binary.LittleEndian.AppendUint32(d.buf, uint32(n))
	}
	if err := d.l.send(d.encodes, item, d.buf); err != nil {
		return err
	}
	for _, rest := range parts(in, b.Patches) {
		for len(rest) > 0 {
			n := min(len(rest), ItemFrame)
			if err := d.l.send(d.encodes, pixels, rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
	}
	return d.fail(e.Encode(x, b))
}

// WaitItem waits for rank 0's encoding.
func (d *Device) WaitItem() error {
	if e, ok := d.Device.(backend.Encoder); ok {
		return d.fail(e.WaitItem())
	}
	return nil
}

// receiving is the item that a follower receives and encodes.
type receiving struct {
	binding backend.EncodeBinding
	rest    [][]byte // of the input's memory, which is not filled yet
	busy    bool     // its encoding was started, and its end was not waited for
	set     int      // of the launch behind it; −1: there is none yet
}

// item begins an item. The device has buffers of one, so it waits for the encoding of the one before.
func (r *run) item(b []byte) error {
	if r.Encoder == nil || r.Tower == nil || r.Encoder.Item() == nil {
		return &FrameError{"rank 0 sent an item, and this rank encodes none"}
	}
	in := r.Encoder.Item()
	if len(b) != 12 {
		return &FrameError{fmt.Sprintf("the size of an item in %d bytes", len(b))}
	}
	var n [3]int
	for i := range n {
		n[i] = int(int32(binary.LittleEndian.Uint32(b[4*i:])))
	}
	if n[0] < 1 || n[0] > in.Most() {
		return &FrameError{fmt.Sprintf("an item of %d patches; there are buffers of %d", n[0], in.Most())}
	}
	if err := r.waitItem(); err != nil {
		return err
	}
	r.receiving = receiving{binding: backend.EncodeBinding{Patches: n[0], Rows: n[1], At: int32(n[2])}, rest: parts(in, n[0])}
	return nil
}

// pixels fills the next part of an item. It starts the encoding behind the last one.
func (r *run) pixels(b []byte) error {
	it := &r.receiving
	for len(b) > 0 && len(it.rest) > 0 {
		n := copy(it.rest[0], b)
		if b, it.rest[0] = b[n:], it.rest[0][n:]; len(it.rest[0]) == 0 {
			it.rest = it.rest[1:]
			if len(it.rest) == 0 && len(b) == 0 {
				it.busy, it.set = true, -1
				return r.Encoder.Encode(r.Tower, it.binding)
			}
		}
	}
	if len(b) > 0 {
		return &FrameError{fmt.Sprintf("%d bytes follow an item", len(b))}
	}
	return nil
}

// waitItem returns the error of the encoding that was started last.
func (r *run) waitItem() error {
	if !r.receiving.busy {
		return nil
	}
	r.receiving.busy = false
	return r.Encoder.WaitItem()
}
