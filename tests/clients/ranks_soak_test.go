//go:build clients && soak

package clients

import (
	"strings"
	"syscall"
	"testing"
	"time"
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

// TestSoakRanksSignals is TestRanksSignals for the signals that act as SIGTERM to the first process does.
func TestSoakRanksSignals(t *testing.T) {
	t.Run("Ctrl-C", func(t *testing.T) { drains(t, "supervisor", syscall.SIGINT) })
	t.Run("SIGTERM to rank 1", func(t *testing.T) { drains(t, "rank 1", syscall.SIGTERM) })
}

// TestSoakRanksTwice starts a second rank 0 at the address of the first, with a rank 1 that finds the first one: both are refused, and
// the first server goes on. mpirun ends one of them when the other has been refused, so one of the two reasons is in the log.
func TestSoakRanksTwice(t *testing.T) {
	at := freeAddress(t)
	var servers [2]*ranked
	for i := range servers {
		r := newRanked(t, twoStages)
		servers[i] = r
		r.start(t, "mpirun", mpirun(2, "env", "VAPP_RANKS_KEY=a", vapp(t), "up", r.profile(), "--leader", at)...)
		if i == 0 {
			r.awaitReady(t)
		}
	}
	begun := time.Now()
	took := servers[1].gone(t, begun)
	log := servers[1].log()
	refused := strings.Contains(log, "is another rank 0 running here?") || strings.Contains(log, "has all its ranks; rank 1 came late or twice")
	if servers[1].code() == "0" || !refused { // gone has a limit of its own, which includes the start here
		t.Errorf("the second server ended after %v with exit code %s:\n%s", took, servers[1].code(), log)
	}
	t.Logf("after %v:\n%s", took, log)
	s := servers[0].stream(t, 20)
	if saw := s.saw(); saw != "whole reply" {
		t.Errorf("the first server: %s", saw)
	}
}

// TestSoakRanksStopped stops the processes that started the ranks, as Ctrl-Z does: the ranks serve without them.
func TestSoakRanksStopped(t *testing.T) {
	for _, who := range []string{"supervisor", "mpirun"} {
		t.Run(who, func(t *testing.T) {
			r := startRanks(t, twoStages)
			s := r.stream(t, 100)
			r.signal(t, who, syscall.SIGSTOP)
			if saw := s.saw(); saw != "whole reply" {
				t.Errorf("the client saw: %s", saw)
			}
			r.signal(t, who, syscall.SIGCONT)
			r.signal(t, "supervisor", syscall.SIGTERM)
			if code := r.code(); code != "0" {
				t.Errorf("exit code %s", code)
			}
			r.clean(t)
		})
	}
}
