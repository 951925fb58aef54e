package checkpoint

import (
	"slices"
	"strconv"
	"strings"
)

// eachExpert stands for the number of an expert in the name of a stack.
const eachExpert = ".experts.*."

// member returns the tensor of one expert of a stack: "a.experts.*.up" and 3 give "a.experts.3.up".
func member(stack string, expert int) string {
	return strings.Replace(stack, eachExpert, ".experts."+strconv.Itoa(expert)+".", 1)
}

// stack returns the tensors of all experts as one [experts, …]; its name has "*" in the place of the
// expert's number. They must have one shape and format. Numbers without a shape have the rows
// [experts, 1].
func (c *Checkpoint) stack(name string) (TensorInfo, bool) {
	if !strings.Contains(name, eachExpert) {
		return TensorInfo{}, false
	}
	var out TensorInfo
	for n := 0; n < maxExperts; n++ {
		i, ok := c.byName[member(name, n)]
		if !ok {
			break
		}
		t := c.tensors[i]
		if n == 0 {
			out = TensorInfo{Name: name, Format: t.Format, File: t.File, Shape: append([]int64{0}, t.Shape...)}
			if len(t.Shape) == 0 {
				out.Shape = []int64{0, 1}
			}
		}
		if t.Format != out.Format || t.RopeHead != 0 || t.tiles.each > 0 || len(t.Shape) > 0 && !slices.Equal(t.Shape, out.Shape[1:]) || len(t.Shape) == 0 && !slices.Equal(out.Shape[1:], []int64{1}) {
			return TensorInfo{}, false
		}
		out.Shape[0]++
		out.Bytes += t.Bytes
	}
	return out, len(out.Shape) > 0
}

// readStack fills dst with piece bytes of each of the rows of a stack, from byte first of the row on;
// piece < 0: whole rows.
func (c *Checkpoint) readStack(name string, row0, rows int, first, piece int64, dst []byte) error {
	i, ok := c.byName[member(name, 0)]
	if !ok || !strings.Contains(name, eachExpert) {
		return fault(c.path, name, "is not in the checkpoint")
	}
	t := c.tensors[i]
	each, size := int(t.Rows()), piece
	if piece < 0 {
		size = t.RowBytes()
	}
	if row0 < 0 || rows < 0 || int64(len(dst)) != int64(rows)*size {
		return fault(t.file(c), name, "%d bytes given for %d rows of %d bytes from row %d on", len(dst), rows, size, row0)
	}
	for rows > 0 {
		n := min(rows, each-row0%each)
		if err := c.ReadColumns(member(name, row0/each), row0%each, n, first, dst[:int64(n)*size]); err != nil {
			return err
		}
		row0, rows, dst = row0+n, rows-n, dst[int64(n)*size:]
	}
	return nil
}

// members returns the tensors of a stack, or the name of another tensor.
func (c *Checkpoint) members(name string) []string {
	if _, ok := c.byName[name]; ok || !strings.Contains(name, eachExpert) {
		return []string{name}
	}
	var out []string
	for n := 0; n < maxExperts; n++ {
		m := member(name, n)
		if _, ok := c.byName[m]; !ok {
			break
		}
		out = append(out, m)
	}
	return out
}
