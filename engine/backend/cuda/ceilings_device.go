//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

// Ceilings measures the device of f with copies of so many bytes, and with a product of three square
// matrices of side numbers: the best of three rounds of five. A machine without
// cuBLASLt, or with one that cannot be used, has no Library.
func (Opener) Ceilings(f backend.Facts, bytes int64, side int) (c Ceilings, err error) {
	ordinal, err := find(f)
	if err != nil {
		return c, err
	}
	ctx, err := driver.Open(ordinal)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	err = ctx.Do(func() (err error) {
		s, err := ctx.Stream()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		m := ceilingOf{ctx, s}
		if c.Copy, err = m.copied(bytes); err != nil {
			return err
		}
		c.Library, c.Version, err = m.multiplied(side)
		if why := libraryMissing(err); why != "" {
			c.Why, err = why, nil
		}
		return err
	})
	return c, err
}

// libraryMissing returns in a line why there is no usable cuBLASLt; "" for other errors.
func libraryMissing(err error) string {
	var none *driver.NoBLAS
	var old *driver.BLASTooOld
	var newer *driver.BLASTooNew
	var failed *driver.BLASError
	var algorithm *driver.NoAlgorithm
	if errors.As(err, &none) || errors.As(err, &old) || errors.As(err, &newer) || errors.As(err, &failed) || errors.As(err, &algorithm) {
		return err.Error()
	}
	return ""
}

// ceilingOf measures on a stream.
type ceilingOf struct {
	ctx *driver.Context
	s   *driver.Stream
}

// copied returns the bytes a second that copies read and write.
func (m ceilingOf) copied(n int64) (rate float64, err error) {
	from, free, err := m.noise(n)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, free()) }()
	to, free2, err := m.noise(n)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, free2()) }()
	seconds, err := m.timed(func() error { return m.s.OnDevice(to, from, n) })
	return 2 * float64(n) / seconds, err
}

// multiplied returns the operations a second of cuBLASLt, and its version.
func (m ceilingOf) multiplied(side int) (rate float64, version int, err error) {
	b, err := m.ctx.BLAS()
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	n := int64(side)
	var at [4]driver.Address
	for i, bytes := range []int64{2 * n * n, 2 * n * n, 4 * n * n, backend.CUBLASLtWorkspace} {
		p, free, err := m.noise(bytes)
		if err != nil {
			return 0, 0, err
		}
		defer func() { err = errors.Join(err, free()) }()
		at[i] = p
	}
	p, err := b.Product(driver.Multiplication{
		Numbers: driver.BF16, In: side, Out: side, Most: side, Unit: side,
		W: at[0], X: at[1], Y: at[2], Workspace: at[3], Bytes: backend.CUBLASLtWorkspace, Args: 4,
	})
	if err != nil {
		return 0, 0, err
	}
	rows := slices.Clone(bytesAt([]int32{int32(side)}))
	l, err := driver.NewList([]driver.Launch{{Product: p, Blocks: [3]int{1, 1, 1}, Threads: [3]int{1, 1, 1}, Args: rows}})
	if err != nil {
		return 0, 0, err
	}
	defer l.Close()
	seconds, err := m.timed(func() error { return l.Run(m.s, 0, 1, [driver.NumBound]int32{}) })
	return 2 * float64(n) * float64(n) * float64(n) / seconds, b.Version(), err
}

// noise returns memory with bf16 numbers between −1 and 1, and what frees it. Equal numbers would draw
// less power, and could be faster.
func (m ceilingOf) noise(n int64) (driver.Address, func() error, error) {
	p, err := m.ctx.Alloc(n)
	if err != nil {
		return 0, nil, err
	}
	free := func() error { return m.ctx.Free(p) }
	some := make([]uint32, min(n, 1<<20)/4)
	r := rand.New(rand.NewPCG(uint64(n), 1))
	for i := range some {
		some[i] = r.Uint32()&0x81ff81ff | 0x3d803d80 // two of them: a sign, 2⁻⁴ to 2⁻¹, a fraction
	}
	err = m.s.ToDevice(p, unsafe.Pointer(&some[0]), int64(4*len(some)))
	for done := int64(4 * len(some)); err == nil && done < n; done *= 2 {
		err = m.s.OnDevice(p+driver.Address(done), p, min(done, n-done))
	}
	if err != nil {
		return 0, nil, errors.Join(err, free())
	}
	return p, free, nil
}

// timed returns the seconds of one call of f by the device's clock.
func (m ceilingOf) timed(f func() error) (float64, error) {
	const rounds, calls = 3, 5
	var timers [2]*driver.Event
	for i := range timers {
		e, err := m.ctx.Timer()
		if err != nil {
			return 0, err
		}
		defer e.Close()
		timers[i] = e
	}
	if err := f(); err != nil { // to warm up
		return 0, err
	}
	var best time.Duration
	for round := range rounds {
		if err := m.s.Record(timers[0]); err != nil {
			return 0, err
		}
		for range calls {
			if err := f(); err != nil {
				return 0, err
			}
		}
		if err := m.s.Record(timers[1]); err != nil {
			return 0, err
		}
		if err := m.s.Wait(hangTimeout); err != nil {
			return 0, err
		}
		took, err := timers[1].Since(timers[0])
		if err != nil {
			return 0, err
		}
		if round == 0 || took < best {
			best = took
		}
	}
	return max(best.Seconds(), 1e-9) / calls, nil
}
