//go:build linux && cgo && cuda

package cuda

import (
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/backend/nccl"
	"vapp.dev/kernels/cuda/cudatest"
)

// otherRank is the environment variable with which TestOtherProcess is rank 1 in a process of its own.
const otherRank = "VAPP_TEST_RANK"

// aRank opens a rank with memory that begins with numbers v, and joins. The thread is locked.
func aRank(t *testing.T, id []byte, rank, world int, v ...float32) (*member, driver.Address) {
	t.Helper()
	g, err := nccl.Connect(id, rank, world, 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	m, err := openMember(0, g.(*nccl.Group))
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.ctx.Alloc(joinBytes)
	if err == nil {
		err = m.join(p)
	}
	if err == nil {
		err = errors.Join(m.work.Fill(p, 0, joinBytes), m.work.ToDevice(p, unsafe.Pointer(&v[0]), int64(4*len(v))))
	}
	if err != nil {
		t.Fatal(err)
	}
	return m, p
}

// test launches collectives on numbers at p and waits for them; Y is 1024 bytes behind X.
func (m *member) test(p driver.Address, calls ...nccl.Args) error {
	var launches []driver.Launch
	for _, a := range calls {
		a.X, a.Y = uint64(p), uint64(p)
		if a.Kind == nccl.AllGather || a.Kind == nccl.Exchange {
			a.Y += 1024
		}
		launches = append(launches, driver.Launch{Call: m.collective(), Blocks: [3]int{1, 1, 1}, Threads: [3]int{1, 1, 1}, Args: bytesOf(&a)})
	}
	list, err := driver.NewList(launches)
	if err != nil {
		return err
	}
	defer list.Close()
	if err := list.Run(m.work.Stream, 0, list.Len(), [driver.NumBound]int32{}); err != nil {
		return err
	}
	return m.work.wait.until(m.work, time.Minute)
}

func (m *member) leaveTest() error { return errors.Join(m.close(), m.ctx.Close()) }

func useNCCL(t *testing.T, settings string) []byte {
	t.Helper()
	if os.Getenv("VAPP_GPU") != "" {
		t.Skip("not run: the ranks share a GPU, which NCCL has only emulated")
	}
	emulated(t)
	t.Setenv("VAPP_LIBNCCL", cudatest.NCCL(t))
	t.Setenv("VAPP_EMULATED_NCCL", settings)
	id, err := nccl.UniqueID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestCollectiveOrder: ranks whose collectives differ in order, number or size get an error, all of
// them and within the time limit of the emulation. Afterwards all device memory is free.
func TestCollectiveOrder(t *testing.T) {
	sum, gather := nccl.Args{Kind: nccl.AllReduce, Count: 8}, nccl.Args{Kind: nccl.AllGather, Count: 4}
	for name, c := range map[string]struct {
		other []nccl.Args
		want  string
	}{
		"same":    {[]nccl.Args{sum, gather}, ""},
		"swapped": {[]nccl.Args{gather, sum}, "ncclAllGather"},
		"dropped": {[]nccl.Args{gather}, "ncclAllGather"},
		"missing": {[]nccl.Args{sum}, "rank 0 waits in ncclAllGather of 4 numbers for rank 1, which does not come"},
		"size":    {[]nccl.Args{{Kind: nccl.AllReduce, Count: 9}, gather}, "of 9"},
	} {
		t.Run(name, func(t *testing.T) {
			id := useNCCL(t, "timeout=300")
			errs, calls := make([]error, 2), [][]nccl.Args{{sum, gather}, c.other}
			var ranks, ended sync.WaitGroup
			ended.Add(2)
			for i := range 2 {
				ranks.Go(func() {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					m, p := aRank(t, id, i, 2, 1, 2)
					errs[i] = m.test(p, calls[i]...)
					ended.Done()
					ended.Wait() // a rank that leaves early would be one that has gone
					if err := m.leaveTest(); err != nil {
						t.Error(err)
					}
				})
			}
			ranks.Wait()
			for i, err := range errs {
				var e *nccl.Error
				if name == "missing" && i == 1 && err == nil { // it has ended its calls
					continue
				}
				if (err == nil) != (c.want == "") || err != nil && (!errors.As(err, &e) || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("rank %d: %v, want %q", i, err, c.want)
				}
			}
			if n := driver.Counted("taken"); n > 0 {
				t.Errorf("%d bytes are still taken", n)
			}
		})
	}
}

// TestOtherProcess: two processes add their numbers. One ends without a word: the other one's next
// collective fails, with a name of the rank.
func TestOtherProcess(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if text := os.Getenv(otherRank); text != "" {
		id, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		m, p := aRank(t, id, 1, 2, 10, 20)
		if err := m.test(p, nccl.Args{Kind: nccl.AllReduce, Count: 2}); err != nil {
			t.Fatal(err)
		}
		os.Exit(9)
	}
	id := useNCCL(t, "timeout=20000,memory="+strconv.Itoa(8<<20))
	cmd := exec.Command(os.Args[0], "-test.run=^TestOtherProcess$")
	cmd.Env = append(os.Environ(), otherRank+"="+hex.EncodeToString(id))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m, p := aRank(t, id, 0, 2, 1, 2)
	if n, ok := m.ranks.Memory(); n != 8<<20 || !ok {
		t.Errorf("communicators of %d bytes, %v", n, ok)
	}
	if err := m.test(p, nccl.Args{Kind: nccl.AllReduce, Count: 2}); err != nil {
		t.Fatal(err)
	}
	got := make([]float32, 2)
	if err := errors.Join(m.work.FromDevice(unsafe.Pointer(&got[0]), p, 8), m.work.Wait(time.Minute)); err != nil || got[0] != 11 || got[1] != 22 {
		t.Errorf("%v, %v", got, err)
	}
	var ended *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &ended) || ended.ExitCode() != 9 {
		t.Errorf("the other process: %v", err)
	}
	err := m.test(p, nccl.Args{Kind: nccl.AllReduce, Count: 2})
	if err == nil || !strings.Contains(err.Error(), "rank 0 of 2: NCCL: remote process exited") || !strings.Contains(err.Error(), "for rank 1, which has gone") {
		t.Error(err)
	}
	if err := m.leaveTest(); err != nil {
		t.Error(err)
	}
}

// TestLateRank: a rank that waits for another one ends after its limit, or when it is aborted, and
// a group that NCCL does not connect is refused.
func TestLateRank(t *testing.T) {
	id, forever := useNCCL(t, ""), make(chan bool)
	for _, wait := range []time.Duration{50 * time.Millisecond, time.Minute} {
		g, err := nccl.Connect(id, 0, 2, 1, wait)
		if err != nil {
			t.Fatal(err)
		}
		mine := errors.New("mine")
		if wait == time.Minute {
			g.Abort(mine)
		}
		var late *nccl.LateError
		err = g.(*nccl.Group).Join(func(func() error) error { <-forever; return nil })
		if wait == time.Minute != errors.Is(err, mine) || wait != time.Minute != errors.As(err, &late) {
			t.Errorf("%v: %v", wait, err)
		}
	}
	if _, err := newLayout(backend.Facts{Capability: "9.0"}, backend.Settings{Group: foreign{}}); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "cuda.foreign") {
		t.Error(err)
	}
}

// foreign is a group of the host's memory.
type foreign struct{ backend.Group }
