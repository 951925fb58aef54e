package ref

import "vapp.dev/kernels"

// Embed sets y, [cols], to row id of table [rows, cols], stored as f, times scale.
func Embed(f kernels.Format, table []byte, id int32, scale float32, y []float32) {
	size := f.Bytes(int64(len(y)))
	Dequantize(f, table[int64(id)*size:int64(id+1)*size], y)
	for i := range y {
		y[i] *= scale
	}
}
