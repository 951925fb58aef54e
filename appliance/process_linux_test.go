package appliance

import "testing"

func TestProcessUse(t *testing.T) {
	if u, ok := processUse(); !ok || u.rss < 1<<20 || u.threads < 2 {
		t.Errorf("%+v, %v", u, ok)
	}
	if u, ok := parseProcessStatus("Name:\tvapp\nVmRSS:\t  12 kB\nThreads:\t3\n"); !ok || u != (use{12 << 10, 3}) {
		t.Errorf("%+v, %v", u, ok)
	}
	for _, text := range []string{"", "\nVmRSS:\t12 kB\n", "\nVmRSS:\tx\nThreads:\ty\n", "\nVmRSS:\nThreads:\n"} {
		if u, ok := parseProcessStatus(text); ok {
			t.Errorf("%q: %+v", text, u)
		}
	}
}
