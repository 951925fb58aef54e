//go:build clients && soak

package clients

import (
	"syscall"
	"testing"
)

// TestSoakRanksKilled is TestRanksKilled for every process, moment and signal.
func TestSoakRanksKilled(t *testing.T) {
	var kills []kill
	for _, moment := range []string{"load", "prefill", "decode", "drain"} {
		for _, who := range []string{"rank 0", "rank 1", "mpirun", "supervisor"} {
			kills = append(kills, kill{who, syscall.SIGKILL, moment})
			if who[0] == 'r' {
				kills = append(kills, kill{who, syscall.SIGSTOP, moment})
			}
		}
	}
	runKills(t, kills)
}

// TestSoakRanksLoad is TestRanksLoad with 2,000 requests.
func TestSoakRanksLoad(t *testing.T) { loadRanks(t, 2000, 8) }
