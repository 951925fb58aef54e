package kernels

// Dummy is a tensor with generated elements (dummy weights). Each place that needs them can
// generate them: element e of row r is Levels[b·Size:][:Size], where b is byte e%8 of
// Mix(Mix(Key + r·Golden) + e/8·Golden).
type Dummy struct {
	Key    uint64
	Size   int    // bytes of an element
	Levels []byte // 256 elements
}

// Golden is the increment of SplitMix64's counter: 2⁶⁴ over the golden ratio.
const Golden = 0x9e3779b97f4a7c15

// Mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Row writes the first elements of a row.
func (m Dummy) Row(row uint64, dst []byte) {
	start := Mix(m.Key + row*Golden)
	for e := uint64(0); len(dst) > 0; e++ {
		b := Mix(start+e/8*Golden) >> (8 * (e % 8)) & 255
		dst = dst[copy(dst, m.Levels[int(b)*m.Size:][:m.Size]):]
	}
}
