package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

// requestProgress shows how many requests are done: a bar on a terminal, elsewhere a
// plain line for every tenth. What it returns may be called from many goroutines;
// end leaves the bar as it stands.
func requestProgress(f *os.File) (show func(done, of int), end func()) {
	if !term.IsTerminal(int(f.Fd())) {
		return requestLines(f), func() {}
	}
	bars := mpb.New(mpb.WithOutput(f), mpb.WithWidth(60), mpb.WithRefreshRate(200*time.Millisecond))
	var once sync.Once
	var bar *mpb.Bar
	begin := func(of int) {
		bar = bars.AddBar(int64(of), mpb.PrependDecorators(decor.Name("Requests ")),
			mpb.AppendDecorators(decor.CountersNoUnit("%d / %d"), decor.Elapsed(decor.ET_STYLE_GO, decor.WCSyncSpace)))
	}
	show = func(_, of int) {
		once.Do(func() { begin(of) })
		bar.Increment()
	}
	return show, func() {
		once.Do(func() {})
		if bar != nil {
			bar.Abort(false) // no more than a stop where all are done
		}
		bars.Wait()
	}
}

func requestLines(f *os.File) func(done, of int) {
	var mu sync.Mutex
	shown := 0
	return func(done, of int) {
		mu.Lock()
		defer mu.Unlock()
		if tenth := done * 10 / of; tenth > shown {
			shown = tenth
			fmt.Fprintf(f, "Requests: %3d%% (%d of %d)\n", done*100/of, done, of)
		}
	}
}
