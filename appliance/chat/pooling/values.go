package pooling

import (
	"math"

	"vapp.dev/appliance/chat"
)

// finish turns the engine's numbers into those of the task: truncated and normalized
// embeddings, or classes.
func (s *Service) finish(a *Params, v *Vectors) {
	p := s.text.Pooling()
	var out []float32
	for i := range max(1, v.Rows) {
		row := v.Row(i)
		if p.Task == chat.TaskEmbed {
			if a.Dimensions != nil {
				row = row[:min(*a.Dimensions, len(row))]
			}
			if a.Activate == nil && p.Normalize || a.Activate != nil && *a.Activate {
				normalize(row)
			}
		} else {
			row = classes(p, row, a.Activate)
		}
		out = append(out, row...)
	}
	v.Values = out
}

// normalize divides a vector by its Euclidean length, at least 1e-12 as in torch.
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

// classes returns the activated logits of a classifier; the plain logits if activate is
// false.
func classes(p *chat.PoolingConfig, row []float32, activate *bool) []float32 {
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

// cosine returns the cosine similarity of two vectors; 0 if one has length 0.
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
