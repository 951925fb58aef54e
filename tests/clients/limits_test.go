//go:build clients && !soak

package clients

import "time"

// goneIn is the time after which nothing of a failed group is left. It is 10 s on a machine that does nothing else, which the soak
// holds it to; here other programs may run.
const goneIn = 30 * time.Second

// allRefused says that TestRanksRefused runs all its cases.
const allRefused = false

// total is the number of requests of TestLoad.
const total = 150
