//go:build !unix

package bench

import (
	"math"
	"time"
)

// openFiles returns no limit: this system has none that can be read.
func openFiles() int { return math.MaxInt32 }

// processTime returns 0, which means unknown.
func processTime() time.Duration { return 0 }
