package host

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBind binds a process of its own and reads the CPUs of a thread that it starts afterwards.
func TestBind(t *testing.T) {
	if os.Getenv("VAPP_TEST_BIND") == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestBind$", "-test.v")
		c.Env = append(os.Environ(), "VAPP_TEST_BIND=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	var have unix.CPUSet
	if err := unix.SchedGetaffinity(0, &have); err != nil {
		t.Fatal(err)
	}
	var last int
	for i := range 1024 {
		if have.IsSet(i) {
			last = i
		}
	}
	if err := Bind([]int{last}); err != nil {
		t.Fatal(err)
	}
	var got []int
	done := make(chan struct{})
	go func() {
		defer close(done)
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(0, &set); err != nil {
			t.Error(err)
		}
		for i := range 1024 {
			if set.IsSet(i) {
				got = append(got, i)
			}
		}
	}()
	<-done
	if !slices.Equal(got, []int{last}) {
		t.Errorf("a thread runs on %v, bound to %d", got, last)
	}
}
