package chat

import "math"

// shape makes of the engine's numbers what the task gives.
func (s *Service) shape(a *PoolAsk, v *Vectors) {
	p := s.cfg.Pooling
	var out []float32
	for i := range max(1, v.Rows) {
		row := v.Row(i)
		if p.Task == TaskEmbed {
			row = cut(row, a.Dimensions)
			if *or(a.Activate, &p.Normalize) {
				normalize(row)
			}
		} else {
			row = p.classes(row, a.Activate)
		}
		out = append(out, row...)
	}
	v.Values = out
}

func cut(row []float32, n *int) []float32 {
	if n == nil {
		return row
	}
	return row[:min(*n, len(row))]
}

// normalize divides by the Euclidean length, at least 1e-12 as torch has it.
func normalize(row []float32) {
	var sum float64
	for _, x := range row {
		sum += float64(x) * float64(x)
	}
	n := max(math.Sqrt(sum), 1e-12)
	for i, x := range row {
		row[i] = float32(float64(x) / n)
	}
}

// classes are a classifier's logits, or their activation unless activate is false.
func (p *Pooling) classes(row []float32, activate *bool) []float32 {
	if p.Chosen && len(row) == 2 {
		row = []float32{row[1] - row[0]}
	}
	if activate != nil && !*activate {
		return row
	}
	switch p.Activation {
	case "sigmoid":
		for i, x := range row {
			row[i] = float32(1 / (1 + math.Exp(-float64(x))))
		}
	case "softmax":
		softmax(row)
	}
	return row
}

func softmax(row []float32) {
	most := row[0]
	for _, x := range row {
		most = max(most, x)
	}
	var sum float64
	for _, x := range row {
		sum += math.Exp(float64(x - most))
	}
	for i, x := range row {
		row[i] = float32(math.Exp(float64(x-most)) / sum)
	}
}

// cosine of the angle between two vectors; 0 where one has no length.
func cosine(a, b []float32) float32 {
	var dot, x, y float64
	for i := range a {
		dot += float64(a[i]) * float64(b[i])
		x += float64(a[i]) * float64(a[i])
		y += float64(b[i]) * float64(b[i])
	}
	if x == 0 || y == 0 {
		return 0
	}
	return float32(dot / math.Sqrt(x*y))
}
