// Package fairqueue shares a few places among many clients: clients take turns, a client's
// small jobs pass its large ones, and no client can fill the queue for the others. It must not
// know what a job does. Start reading at Queue in queue.go; Gate adds the locking.
package fairqueue

import "slices"

// maxPassed is how many jobs of the same client may pass a larger one that came earlier.
const maxPassed = 8

// Job is a piece of work that waits for a place.
type Job struct {
	Client string // an API key's id or an address
	Cost   int    // an estimate, in any unit; compared within a client only

	passed int
	ready  chan error // of a Gate: nil when the job has a place
}

// Queue orders the jobs that wait. It has no lock and no clock.
type Queue struct {
	most  int     // most waiting jobs
	n     int     // waiting jobs
	lines []*line // in the order of the clients' turns
}

// line holds the waiting jobs of one client in order of arrival. It is never empty.
type line struct {
	client string
	jobs   []*Job
}

// NewQueue returns a queue of at most that many jobs.
func NewQueue(most int) *Queue { return &Queue{most: most} }

// Len returns how many jobs wait.
func (q *Queue) Len() int { return q.n }

// Push adds a job. If the queue was full, it removes and returns the costliest job of the client
// that has the most jobs, the new one included; otherwise it returns nil.
func (q *Queue) Push(j *Job) (refused *Job) {
	own := q.line(j.Client)
	if own == nil {
		own = &line{client: j.Client}
		q.lines = append(q.lines, own)
	}
	own.jobs = append(own.jobs, j)
	if q.n++; q.n <= q.most {
		return nil
	}
	refused = q.costliest(own)
	q.Remove(refused)
	return refused
}

// costliest returns the costliest job of the client that has the most jobs; of equal jobs the
// newest, and of equal clients l.
func (q *Queue) costliest(l *line) *Job {
	for _, other := range q.lines {
		if len(other.jobs) > len(l.jobs) {
			l = other
		}
	}
	worst := l.jobs[0]
	for _, j := range l.jobs {
		if j.Cost >= worst.Cost {
			worst = j
		}
	}
	return worst
}

// Next removes and returns the job whose turn it is, nil from an empty queue. Clients take
// turns. Of a client's jobs the cheapest is next, or the oldest once maxPassed have passed it.
func (q *Queue) Next() *Job {
	if q.n == 0 {
		return nil
	}
	l := q.lines[0]
	next := 0
	if l.jobs[0].passed < maxPassed {
		for i, j := range l.jobs {
			if j.Cost < l.jobs[next].Cost {
				next = i
			}
		}
	}
	for _, j := range l.jobs[:next] {
		j.passed++
	}
	j := l.jobs[next]
	q.take(0, next)
	if len(q.lines) > 0 && q.lines[0] == l {
		q.lines = append(q.lines[1:], l)
	}
	return j
}

// Remove removes a job, and reports whether it was waiting.
func (q *Queue) Remove(j *Job) bool {
	for i, l := range q.lines {
		if k := slices.Index(l.jobs, j); k >= 0 {
			q.take(i, k)
			return true
		}
	}
	return false
}

// take removes a job of a client, and the client with its last one.
func (q *Queue) take(client, job int) {
	l := q.lines[client]
	l.jobs = slices.Delete(l.jobs, job, job+1)
	if q.n--; len(l.jobs) == 0 {
		q.lines = slices.Delete(q.lines, client, client+1)
	}
}

func (q *Queue) line(client string) *line {
	for _, l := range q.lines {
		if l.client == client {
			return l
		}
	}
	return nil
}
