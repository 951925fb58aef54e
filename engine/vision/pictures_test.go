package vision

import "vapp.dev/engine/vision/rgb"

// picture returns a picture by formula, byte for byte that of testdata/pictures.py: squares of
// noise, of ramps, of a fine checkerboard and of both.
func picture(width, height int, seed uint32) *rgb.Image {
	m := rgb.New(width, height)
	for y := range uint32(height) {
		row := m.Row(int(y))
		for x := range uint32(width) {
			for c := range uint32(3) {
				h := x*2654435761 ^ y*2246822519 ^ (c+seed)*3266489917
				h ^= h >> 15
				h *= 2246822519
				noise := (h ^ h>>13) >> 24
				ramp := (x*(c+3) + y*(5-c)) >> 2 & 255
				v := ramp ^ noise>>3
				switch (x>>5 + y>>5 + seed) & 3 {
				case 0:
					v = noise
				case 1:
					v = ramp
				case 2:
					v = 255 * ((x>>2 ^ y>>2) & 1)
				}
				row[3*x+c] = byte(v)
			}
		}
	}
	return m
}
