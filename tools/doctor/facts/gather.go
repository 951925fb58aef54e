package facts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"vapp.dev/appliance"
	"vapp.dev/appliance/hub"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend/host"
	"vapp.dev/kernels/cpu/isa"
	"vapp.dev/schema"
)

// Sources says where the facts come from.
type Sources struct {
	Machine appliance.Machine
	// Profile is a path; "": facts of the machine only.
	Profile string
	// Failed is why the Profile cannot be read; nil: it is read here.
	Failed error
	Native bool // the binary has the C kernels
	// GPU reads the facts of NVIDIA's devices.
	GPU func() GPU
	// Library finds cuBLASLt and multiplies once with it, on the device that a server uses.
	Library func() Library
	// Sandbox renders a template in a child process.
	Sandbox func(context.Context) error
	Hub     *hub.Client
	Root    fs.FS // files of a Linux system
	Built   time.Time

	limits patience // zero: patient
}

// patience bounds the times: of all of Gather, of a request to the hub, of reading the model's file.
type patience struct{ all, reach, read time.Duration }

var patient = patience{4500 * time.Millisecond, 2 * time.Second, time.Second}

// part is a part of the facts that is read on its own goroutine. It returns a function that writes
// what was read.
type part struct {
	name string
	read func(context.Context) func(*Facts)
}

// Gather reads all facts at once. A part that does not end in time is named in Unfinished. The
// error is that of ctx.
func Gather(ctx context.Context, s Sources) (Facts, error) {
	if s.limits == (patience{}) {
		s.limits = patient
	}
	f := Facts{OS: runtime.GOOS, Arch: runtime.GOARCH, Profile: Profile{Path: s.Profile}}
	f.Clock.Now, f.Clock.Built = time.Now(), s.Built
	parts := []part{{"gpu", s.gpu}, {"cuBLASLt", s.library}, {"hub", s.hub}, {"template sandbox", s.sandbox}, {"profile", s.profile}, {"processor and memory", s.host}}
	limited, stop := context.WithTimeout(ctx, s.limits.all)
	defer stop()
	type result struct {
		name  string
		write func(*Facts)
	}
	done := make(chan result, len(parts))
	for _, p := range parts {
		f.Unfinished = append(f.Unfinished, p.name)
		go func() { done <- result{p.name, p.read(limited)} }()
	}
	for range parts {
		select {
		case r := <-done:
			r.write(&f)
			f.Unfinished = slices.DeleteFunc(f.Unfinished, func(n string) bool { return n == r.name })
		case <-limited.Done():
			return f, ctx.Err()
		}
	}
	return f, ctx.Err()
}

func (s Sources) gpu(context.Context) func(*Facts) {
	g := s.GPU()
	return func(f *Facts) {
		present := f.GPU.Present
		f.GPU = g
		f.GPU.Present = g.Present || present
	}
}

func (s Sources) library(context.Context) func(*Facts) {
	l := s.Library()
	return func(f *Facts) { f.Library = l }
}

func (s Sources) sandbox(ctx context.Context) func(*Facts) {
	begun := time.Now()
	box := Sandbox{Err: textOf(s.Sandbox(ctx))}
	box.Took = time.Since(begun)
	return func(f *Facts) { f.Sandbox = box }
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimSpace(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// host reads processor, memory, huge pages and limits.
func (s Sources) host(context.Context) func(*Facts) {
	sys := host.Survey(s.Root)
	p := Processor{Native: s.Native, Quota: sys.Quota, Nodes: sys.Nodes, Lacks: map[string][]string{}, Online: online()}
	var m Memory
	var limits Limits
	for _, op := range s.Machine.Backends {
		if op.Name() != "cpu" {
			continue
		}
		facts, err := op.Probe()
		if err == nil {
			p.Name, p.Variants, p.NoAMX = facts.Device, facts.Variants, facts.NoAMX
			m = Memory{Total: facts.TotalBytes, Free: facts.FreeBytes, Limit: facts.MemoryLimit}
			limits.Err = textOf(plan.CheckLimits(facts.Limits))
		}
	}
	for _, v := range isa.All {
		if isa.Architecture(v) == runtime.GOARCH && !slices.Contains(p.Variants, v) {
			p.Lacks[v] = isa.Lacks(v)
		}
	}
	m.SwapTotal, m.SwapFree = sys.SwapTotal, sys.SwapFree
	for _, g := range sys.Groups {
		m.Groups = append(m.Groups, Group{max(g.Path, "/"), g.Limit, g.Used})
	}
	limits.read()
	return func(f *Facts) {
		f.Processor, f.Memory, f.Limits = p, m, limits
		f.Huge = Huge{sys.Huge, sys.HugeBytes, sys.HugeTotal, sys.HugeFree}
		f.GPU.Present = f.GPU.Present || sys.Nvidia
	}
}

func (s Sources) hub(ctx context.Context) func(*Facts) {
	at := s.Hub.Settings
	h := Hub{Endpoint: withoutPassword(at.Endpoint), Offline: at.Offline, Token: at.Token != "", Cache: at.Cache, Free: -1}
	if at.Cache != "" {
		h.Free, h.Writable = space(at.Cache)
	}
	var clock time.Time
	if !h.Offline {
		limited, stop := context.WithTimeout(ctx, s.limits.reach)
		defer stop()
		begun := time.Now()
		var err error
		clock, err = s.Hub.Reach(limited)
		h.Took = time.Since(begun)
		if sent := (*url.Error)(nil); errors.As(err, &sent) {
			err = sent.Err // without the address
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %v", s.limits.reach)
		}
		h.Err = textOf(err)
	}
	return func(f *Facts) { f.Hub, f.Clock.Hub = h, clock }
}

// withoutPassword returns an address without the password that it may contain.
func withoutPassword(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "HF_ENDPOINT"
	}
	return u.Redacted()
}

// space returns the free bytes on the disk of a folder, which need not exist yet, and whether this
// process may write there.
func space(dir string) (free int64, writable bool) {
	for {
		if info, err := os.Stat(dir); err == nil {
			return freeBytes(dir), info.IsDir() && mayWrite(dir)
		}
		up := filepath.Dir(dir)
		if up == dir {
			return -1, false
		}
		dir = up
	}
}

// profile reads the port, and the profile with its model and plan.
func (s Sources) profile(ctx context.Context) func(*Facts) {
	if s.Profile == "" {
		at := listen("", 8000)
		return func(f *Facts) { f.Port = at }
	}
	out := Profile{Path: s.Profile}
	if s.Failed != nil {
		out.Err = textOf(s.Failed)
		return func(f *Facts) { f.Profile = out }
	}
	p, err := s.Machine.Load(s.Profile)
	if err != nil {
		out.Err = textOf(err)
		return func(f *Facts) { f.Profile = out }
	}
	out.Name, out.Source, out.Requests = p.Name, p.Model.Source, int64(p.Serve.Limits.MaxConcurrentRequests)
	out.BLAS = p.CUDA != nil && p.CUDA.Linear == "cublaslt"
	port := listen(p.Serve.Host, p.Serve.Port)
	made, err := appliance.PrepareProfile(p, s.Machine)
	if err != nil {
		var short *plan.DoesNotFitError
		var missing *engine.MissingError
		if _, named, _ := appliance.HubName(p); named && errors.As(err, &missing) {
			out.Where, out.Fetch = FromHub, true
		} else {
			out.Err, out.NoFit = textOf(err), errors.As(err, &short)
		}
		return func(f *Facts) { f.Profile, f.Port = out, port }
	}
	defer made.Close()
	pl := made.Plan
	_, named, err := appliance.HubName(p)
	out.Where, out.On = string(made.Model.Where), pl.Backend
	out.Fetch = err == nil && named && made.Model.Loadable() != nil
	out.Needs, out.Budget, out.Carry = pl.Ledger.Total(), pl.Budget.Bytes, carries(pl)
	if err := made.CheckStart(); err != nil && !out.Fetch {
		out.Start = textOf(err)
	}
	disk, newest := s.disk(ctx, p, made)
	return func(f *Facts) { f.Profile, f.Port, f.Disk, f.Clock.Model = out, port, disk, newest }
}

// carries returns how many of the longest sequences a plan runs at once.
func carries(p *plan.Plan) string {
	n := p.Options.MaxModelLen
	return fmt.Sprintf("%s of %s tokens at once", plan.Group(int64(p.Capacity.Running(n))), plan.Group(int64(n)))
}

// disk measures how fast the largest file of the model is read.
func (s Sources) disk(ctx context.Context, p *schema.Profile, made *appliance.Prepared) (Disk, time.Time) {
	var d Disk
	cache := made.Plan.Options.Backend.Cache
	if d.Packed = cache.Dir; d.Packed != "" {
		d.PackedNeeds = made.Plan.Ledger.Bytes("weights")
		d.PackedFree, d.PackedWritable = space(cache.Dir)
	}
	if made.Model.Where != engine.FromCheckpoint || p.Model.LoadFormat == "dummy" {
		return d, time.Time{}
	}
	files := weightsOf(made.Model.Source.Path)
	var newest time.Time
	var largest int64
	for _, file := range files {
		st, err := os.Stat(file)
		if err != nil {
			continue
		}
		d.Bytes += st.Size()
		if st.ModTime().After(newest) {
			newest = st.ModTime()
		}
		if st.Size() > largest {
			largest, d.File = st.Size(), file
		}
	}
	if d.File != "" {
		limited, stop := context.WithTimeout(ctx, s.limits.read)
		defer stop()
		var took time.Duration
		var err error
		d.Read, took, err = readCold(limited, d.File)
		d.Err = textOf(err)
		if took > 0 {
			d.Rate = float64(d.Read) / took.Seconds()
		}
	}
	return d, newest
}

// weightsOf returns the files with weights of a model: a GGUF file, or the safetensors of a
// folder.
func weightsOf(path string) []string {
	if st, err := os.Stat(path); err != nil || !st.IsDir() {
		return []string{path}
	}
	for _, pattern := range []string{"*.safetensors", "*.gguf"} {
		if list, _ := filepath.Glob(filepath.Join(escaped(path), pattern)); len(list) > 0 {
			return list
		}
	}
	return nil
}

// escaped returns a path as a pattern of filepath.Glob that matches it only.
func escaped(path string) string {
	if runtime.GOOS == "windows" {
		return path
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// listen tries to listen on the address of a server for a moment.
func listen(host string, port int) Port {
	at := Port{Address: net.JoinHostPort(host, strconv.Itoa(port)), Number: port}
	l, err := net.Listen("tcp", at.Address)
	if err == nil {
		l.Close()
		return at
	}
	var sys *os.SyscallError
	if at.Err = err.Error(); errors.As(err, &sys) {
		at.Err = sys.Err.Error()
	}
	if at.Used = errors.Is(err, syscall.EADDRINUSE); at.Used {
		bound, _ := netip.ParseAddr(host) // invalid, and so every address, for a name
		at.Holder, _ = appliance.PortHolder(bound, port)
	}
	return at
}
