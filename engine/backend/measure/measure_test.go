package measure

import (
	"errors"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
)

// TestDevice runs both programs on ref: both rates are positive numbers.
func TestDevice(t *testing.T) {
	f, err := ref.Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Device(ref.Opener{}, f, Size{Rows: 64, Cols: 64, Wide: 256, Times: 2})
	if err != nil || r.Bytes <= 0 || r.BF16 <= 0 || math.IsInf(r.Bytes, 0) || math.IsInf(r.BF16, 0) {
		t.Errorf("%+v, %v", r, err)
	}
}

// broken is a backend that cannot open a device.
type broken struct{ ref.Opener }

func (broken) Open(backend.Facts, backend.Settings, backend.Reservation) (backend.Device, error) {
	return nil, errors.New("no such device")
}

func TestDeviceFails(t *testing.T) {
	if _, err := Device(broken{}, backend.Facts{}, Size{Rows: 8, Cols: 32, Wide: 8, Times: 1}); err == nil || err.Error() != "measuring memory: no such device" {
		t.Error(err)
	}
}

// TestNoise: numbers are finite, of both signs, below 1, and the same each time.
func TestNoise(t *testing.T) {
	a, b := make([]byte, 4096), make([]byte, 4096)
	for _, p := range [][]byte{a, b} {
		if err := (noise{}).ReadRows("w", 3, 4, p); err != nil {
			t.Fatal(err)
		}
	}
	if string(a) != string(b) {
		t.Error("other numbers for the same rows")
	}
	signs := [2]int{}
	for i := 0; i < len(a); i += 2 {
		x := math.Float32frombits(uint32(a[i])<<16 | uint32(a[i+1])<<24)
		if math.Abs(float64(x)) >= 1 || math.Abs(float64(x)) < 1.0/32 {
			t.Fatalf("number %d is %v", i/2, x)
		}
		if x < 0 {
			signs[1]++
		} else {
			signs[0]++
		}
	}
	if signs[0] < 512 || signs[1] < 512 {
		t.Errorf("%d positive, %d negative of 2048", signs[0], signs[1])
	}
}
