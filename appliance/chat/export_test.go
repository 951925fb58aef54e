package chat

import "runtime"

// AwaitWaiting returns once until accepts the number of texts that wait for a worker.
func AwaitWaiting(s *Service, until func(waiting int) bool) {
	for {
		s.workers.mu.Lock()
		now := len(s.workers.waiting[0]) + len(s.workers.waiting[1])
		s.workers.mu.Unlock()
		if until(now) {
			return
		}
		runtime.Gosched()
	}
}
