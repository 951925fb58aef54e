package compat

import "fmt"

// Error is a refused input. Field is a field of Request or Device, by its name in a profile
// ("maxModelLen"), or a key of config.json ("config.text_config.layer_types").
type Error struct {
	Field string
	Msg   string
}

func (e *Error) Error() string { return e.Field + ": " + e.Msg }

func fault(field, format string, args ...any) *Error {
	return &Error{Field: field, Msg: fmt.Sprintf(format, args...)}
}

// DoesNotFitError means that the release would refuse to start, because one request of MaxModelLen
// tokens needs more KV memory than is available.
type DoesNotFitError struct {
	Release     Release
	MaxModelLen int
	Need        int64 // bytes of KV cache for one request
	Have        int64 // available bytes; negative where weights and activations exceed the budget
	Longest     int   // largest length that fits, 0 where none does
}

func (e *DoesNotFitError) Error() string {
	if e.Have <= 0 {
		return fmt.Sprintf("memory.utilization: %v has no memory left for the KV cache: weights, activations and graphs need %.2f GiB more than the budget; raise utilization or take a larger device", e.Release, gib(-e.Have))
	}
	if e.Longest == 0 {
		return fmt.Sprintf("maxModelLen: %v refuses: one request of %d tokens needs %.2f GiB of KV cache, there are %.2f GiB, and no length fits", e.Release, e.MaxModelLen, gib(e.Need), gib(e.Have))
	}
	return fmt.Sprintf("maxModelLen: %v refuses: one request of %d tokens needs %.2f GiB of KV cache, there are %.2f GiB; the estimated maximum model length is %d", e.Release, e.MaxModelLen, gib(e.Need), gib(e.Have), e.Longest)
}

func gib(n int64) float64 { return float64(n) / (1 << 30) }
