//go:build cgo && linux

package mpi

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"
)

// timing is what the scenario "time" reports of a size.
type timing struct {
	Name         string
	Own, Library time.Duration
}

// timeAllReduce times sums of 8, 32 and 512 KiB. Its outcome is a JSON text.
func timeAllReduce(w *World) error {
	var out []timing
	for _, kib := range []int{8, 32, 512} {
		own, library, err := w.TimeAllReduce(kib<<10/4, 100)
		if err != nil {
			return err
		}
		out = append(out, timing{fmt.Sprintf("%dKiB", kib), own, library})
	}
	text, err := json.Marshal(out)
	return errors.Join(err, errors.New(string(text)))
}

// BenchmarkAllReduce prints the median time of a sum over two ranks beside that of the library's blocking
// MPI_Allreduce in the same run, in µs.
func BenchmarkAllReduce(b *testing.B) {
	for b.Loop() {
		var times []timing
		if err := json.Unmarshal([]byte(outcomes(b, "time", 2)[0]), &times); err != nil {
			b.Fatal(err)
		}
		for _, t := range times {
			b.ReportMetric(float64(t.Own)/1e3, t.Name+"-µs")
			b.ReportMetric(float64(t.Library)/1e3, t.Name+"-MPI_Allreduce-µs")
		}
	}
	b.ReportMetric(0, "ns/op")
}
