//go:build clients && soak

package clients

import "time"

// goneIn is the time after which nothing of a failed group is left.
const goneIn = 10 * time.Second

// allRefused says that TestRanksRefused runs all its cases.
const allRefused = true

// total is the number of requests of TestLoad.
const total = 300
