package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// countProgress shows the progress of counted work: a bar on a terminal, elsewhere a line for every
// tenth. show may be called from many goroutines. end stops the bar in its current state.
func countProgress(f *os.File, what string) (show func(done, of int), end func()) {
	if !drawable(f) {
		return countLines(f, what), func() {}
	}
	bars := mpb.New(mpb.WithOutput(f), mpb.WithWidth(60), mpb.WithRefreshRate(200*time.Millisecond))
	var once sync.Once
	var bar *mpb.Bar
	begin := func(of int) {
		bar = bars.AddBar(int64(of), mpb.PrependDecorators(decor.Name(what+" ")),
			mpb.AppendDecorators(decor.CountersNoUnit("%d / %d"), decor.Elapsed(decor.ET_STYLE_GO, decor.WCSyncSpace)))
	}
	show = func(_, of int) {
		once.Do(func() { begin(of) })
		bar.Increment()
	}
	return show, func() {
		once.Do(func() {})
		if bar != nil {
			bar.Abort(false) // if all are done, this only stops the bar
		}
		bars.Wait()
	}
}

func countLines(f *os.File, what string) func(done, of int) {
	var mu sync.Mutex
	shown := 0
	return func(done, of int) {
		mu.Lock()
		defer mu.Unlock()
		if tenth := done * 10 / of; tenth > shown {
			shown = tenth
			fmt.Fprintf(f, "%s: %3d%% (%d of %d)\n", what, done*100/of, done, of)
		}
	}
}
