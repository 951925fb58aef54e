package ref

import "math"

// Angles fills y, of 2·len(freq) elements, with the cosines and then the sines of one
// position. The angle is position · freq in float32, as in transformers; cos and sin are
// rounded to float32 and multiplied by scale in float32.
func Angles(position int32, freq []float32, scale float32, y []float32) {
	for i, f := range freq {
		sin, cos := math.Sincos(float64(float32(position) * f))
		y[i] = float32(cos) * scale
		y[len(freq)+i] = float32(sin) * scale
	}
}

// AnglesOfSections is Angles of a token with three positions (time, row, column): frequency i uses
// position i mod 3 if i < 3·sections of it, else time (transformers: interleaved mrope).
func AnglesOfSections(positions []int32, sections [3]int, freq []float32, scale float32, y []float32) {
	for i, f := range freq {
		axis := i % 3
		if i >= 3*sections[axis] {
			axis = 0
		}
		sin, cos := math.Sincos(float64(float32(positions[axis]) * f))
		y[i], y[len(freq)+i] = float32(cos)*scale, float32(sin)*scale
	}
}

// Temperature returns 1 + beta · ln(1 + ⌊(position + offset) / every⌋), computed in float64 and
// rounded to float32: the factor of a query by its position (transformers: get_llama_4_attn_scale).
func Temperature(position int32, beta float32, every, offset int32) float32 {
	return float32(1 + float64(beta)*math.Log(float64(1+(int64(position)+int64(offset))/int64(every))))
}

// Rotate rotates one head by halves (NeoX). With h = len(angles)/2, it rotates the pair (i,
// i+h) by the angle whose cosine is angles[i] and whose sine is angles[h+i], in float32,
// every product rounded. Elements from 2h on are copied. y may be x.
func Rotate(x, angles, y []float32) {
	h := len(angles) / 2
	for i := range h {
		a, b, cos, sin := x[i], x[i+h], angles[i], angles[h+i]
		y[i] = float32(a*cos) - float32(b*sin)
		y[i+h] = float32(b*cos) + float32(a*sin)
	}
	copy(y[2*h:], x[2*h:])
}

// RotatePairs is Rotate by neighbours (GPT-J): pair i is (2i, 2i+1).
func RotatePairs(x, angles, y []float32) {
	h := len(angles) / 2
	for i := range h {
		a, b, cos, sin := x[2*i], x[2*i+1], angles[i], angles[h+i]
		y[2*i] = float32(a*cos) - float32(b*sin)
		y[2*i+1] = float32(b*cos) + float32(a*sin)
	}
	copy(y[2*h:], x[2*h:])
}
