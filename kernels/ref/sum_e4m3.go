package ref

import "math"

// SumBitsE4M3 is how many bits of a sum of products of E4M3 the matrix units of compute capability 8.9 (mma.sync) and
// 9.0 (wgmma) keep. They align 32 products and the sum before to the largest of them, add the highest 14 bits of each
// and keep 14 bits of the result (DeepSeek-V3, arXiv 2412.19437, section 3.5.2; SageAttention2, arXiv 2411.10958, section
// 3.3: 13 stored bits). What is below is cut off.
const SumBitsE4M3 = 14

// SumColumnsE4M3 is the most columns that a kernel has the units sum before it adds the sum to others in float32.
const SumColumnsE4M3 = 128

// SumErrorE4M3 returns how far Σ x·w from such units may be from the exact sum: most bounds it, standard is its standard
// error if the signs of what is cut off are random. x and w are rows of E4M3 with their scales, which must not change
// within 128 columns.
//
// In a product of 32 columns let m be the largest of its products, the sum before and the sum after. Products from m/64
// on, which have 8 bits, are exact. Each of the others, the sum before and the sum after lose less than
// 2⁻¹³·m: at most their number times that, and √(their number/3) times that if they are independent.
func SumErrorE4M3(x, w []float32) (most, standard float64) {
	const depth = 32
	var square float64
	for from := 0; from < len(x); from += SumColumnsE4M3 {
		group, sum := min(len(x), from+SumColumnsE4M3), 0.0
		for at := from; at < group; at += depth {
			largest := math.Abs(sum)
			for k := at; k < min(group, at+depth); k++ {
				p := float64(x[k]) * float64(w[k])
				largest = max(largest, math.Abs(p))
				sum += p
			}
			largest = max(largest, math.Abs(sum))
			cut := 2.0
			for k := at; k < min(group, at+depth); k++ {
				if p := math.Abs(float64(x[k]) * float64(w[k])); p > 0 && p < largest/64 {
					cut++
				}
			}
			unit := math.Ldexp(largest, 1-SumBitsE4M3)
			most += cut * unit
			square += cut * unit * unit / 3
		}
	}
	return most, math.Sqrt(square)
}
