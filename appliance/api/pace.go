package api

import (
	"sync"
	"time"

	"vapp.dev/appliance/chat"
)

// pace is how long recent replies took and how long they were, for what a client
// is told that has to come again.
type pace struct {
	mu     sync.Mutex
	took   float64 // seconds from request to end, waiting included
	tokens float64 // of prompt and reply
}

// recent is the weight of the newest reply in the means.
const recent = 1.0 / 16

// ended counts a reply.
func (p *pace) ended(took time.Duration, u chat.Usage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, n := took.Seconds(), float64(u.Prompt+u.Completion)
	if p.took == 0 {
		p.took, p.tokens = s, n
		return
	}
	p.took += recent * (s - p.took)
	p.tokens += recent * (n - p.tokens)
}

// maxWait bounds what a client is asked to wait.
const maxWait = 5 * time.Minute

// wait is after what time what waits now has begun. open requests of which slots
// run at once end at open/took a second (Little's law), and open − slots wait.
func (p *pace) wait(open int, slots func(tokens int) int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	run := 1
	if slots != nil {
		run = max(1, slots(int(p.tokens)))
	}
	share := float64(max(1, open-run)) / float64(max(1, open))
	return min(maxWait, time.Duration(p.took*share*float64(time.Second)))
}
