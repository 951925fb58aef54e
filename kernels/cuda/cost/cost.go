// Package cost predicts how long launches of the CUDA kernels take. It counts bytes and operations from a
// launch's arguments, and instructions from the kernels' machine code (code.tsv), and divides them by the rates of
// a GPU (rates.go). Nothing here was measured with these kernels: predictions are to be held against gpu-check.
//
// It must not import a backend, read a clock or open a device: equal launches give equal times. Start reading at
// Counter.Count in count.go, then GPU.Time in time.go.
package cost
