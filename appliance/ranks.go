package appliance

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"vapp.dev/appliance/launcher"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/ranks"
	"vapp.dev/kernels"
	"vapp.dev/schema"
)

// Fabric is a library of collectives, which moves tensors between the ranks of a backend.
type Fabric interface {
	// Open starts the library for the rank at a place.
	Open(launcher.Place, FabricOptions) (Session, error)
}

// FabricOptions are the choices about a Fabric.
type FabricOptions struct {
	Reduce kernels.Format // of summed values on their way: F32 or BF16
	Wait   time.Duration  // for the other ranks
}

// RankSetup says which rank this process is, and how it connects to the others. The zero value is that of programs that run
// no ranks.
type RankSetup struct {
	Place   launcher.Place
	Fabrics map[string]Fabric // by backend
	Version string            // of this program
	Log     *slog.Logger
	// Bind binds this process to CPUs.
	Bind func(cpus []int) error
	// Drain is called on rank 0 when another rank was asked to end, by a signal.
	Drain func()
}

// Session is an open Fabric.
type Session interface {
	// Library returns the library's name and version.
	Library() string
	// Broadcast gives rank 0's b to all ranks, in place. ok is false if the library cannot before Connect.
	Broadcast(b []byte) (ok bool, err error)
	// Ticket returns, on rank 0, what all ranks connect with; it may be empty.
	Ticket() ([]byte, error)
	// Connect connects all ranks.
	Connect(ticket []byte, tensor, pipeline int, wait time.Duration) (backend.Group, error)
	// Close ends the session. It returns at once if the group was aborted.
	Close() error
}

// silence is after how long without a sign a rank is lost. A rank that is busy sends one every second.
const silence = 6 * time.Second

// meeting is how the ranks of a model meet.
type meeting struct {
	place   launcher.Place
	session Session
	address string
	options ranks.Options
}

// places returns the sizes of the plan's grid of ranks.
func (p *Prepared) places() ranks.Places {
	return ranks.Places{Tensor: max(1, p.Profile.Parallel.Tensor), Pipeline: max(1, p.Profile.Parallel.Pipeline)}
}

// openFabric starts the library of collectives and finds out where the ranks meet.
func (p *Prepared) openFabric() (*meeting, error) {
	place, f := p.setup.Place, p.setup.Fabrics[p.Opener.Name()]
	if f == nil {
		return nil, backend.Unsupported(p.Opener.Name(), "several ranks", "this command starts no ranks; `vapp up`, `vapp run` and `vapp bench` do")
	}
	key, err := RanksKey(p.Profile)
	if err != nil {
		return nil, err
	}
	wait := time.Duration(p.Profile.Parallel.Wait)
	m := &meeting{place: place, address: place.Leader}
	m.options = ranks.Options{Key: key, Wait: wait, Silence: silence, Log: p.setup.Log}
	m.session, err = f.Open(m.place, FabricOptions{Reduce: plan.Reduce(p.Profile), Wait: wait})
	var named *launcher.Error
	if err != nil && !errors.As(err, &named) { // the library does not know which rank it is for
		host, _ := os.Hostname()
		err = fmt.Errorf("rank %d of %d on %s: %w", place.Rank, place.World, host, err)
	}
	return m, err
}

// RanksKey returns the key by which the ranks of a profile authenticate each other: of the environment, else of the profile; nil
// without one.
func RanksKey(p *schema.Profile) ([]byte, error) {
	if k := os.Getenv(launcher.OwnKey); k != "" {
		return []byte(k), nil
	}
	k := p.Parallel.Key
	switch {
	case k == nil:
		return nil, nil
	case k.Env != "":
		if v := os.Getenv(k.Env); v != "" {
			return []byte(v), nil
		}
		return nil, p.Reject("parallel.key", "the environment variable %s is not set", k.Env)
	case k.File != "":
		b, err := os.ReadFile(p.Path(k.File))
		if b = bytes.TrimSpace(b); err == nil && len(b) == 0 {
			err = errors.New("the file is empty")
		}
		if err != nil {
			return nil, p.Reject("parallel.key", "%v", err)
		}
		return b, nil
	}
	return []byte(k.Secret()), nil
}

// invitation is what rank 0 sends by the library of collectives where no launcher has said where it is.
type invitation struct {
	Address string
	Key     []byte
}

// invitationBytes is the size of an invitation on its way; all ranks must know it.
const invitationBytes = 1024

// exchange gives all ranks the address of rank 0 and, if there is no key, one of this run.
func (m *meeting) exchange(mine invitation) (invitation, error) {
	b := make([]byte, invitationBytes)
	text, err := json.Marshal(mine)
	if err != nil {
		return mine, err
	}
	copy(b, text)
	ok, err := m.session.Broadcast(b)
	switch {
	case err != nil:
		return mine, err
	case !ok:
		return mine, fmt.Errorf("%s does not say where rank 0 is; name it: --leader HOST:PORT", m.place.By)
	}
	var got invitation
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	if err := json.Unmarshal(b[:n], &got); err != nil {
		return mine, fmt.Errorf("rank 0's invitation: %w", err)
	}
	return got, nil
}

// listen opens the control channel of rank 0.
func (m *meeting) listen(self ranks.Member) (*ranks.Leader, error) {
	if m.address != "" {
		return ranks.Listen(m.address, m.options, self)
	}
	host, err := ownAddress(m.place)
	if err != nil {
		return nil, err
	}
	if len(m.options.Key) == 0 {
		m.options.Key = make([]byte, 32)
		_, _ = rand.Read(m.options.Key)
	}
	l, err := ranks.Listen(net.JoinHostPort(host, "0"), m.options, self)
	if err != nil {
		return nil, err
	}
	if _, err := m.exchange(invitation{l.Addr().String(), m.options.Key}); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// join connects another rank to rank 0.
func (m *meeting) join(ctx context.Context, self ranks.Member) (*ranks.Follower, ranks.Decided, error) {
	if m.address == "" {
		got, err := m.exchange(invitation{})
		if err != nil {
			return nil, ranks.Decided{}, err
		}
		m.address, m.options.Key = got.Address, got.Key
	}
	return ranks.Join(ctx, m.address, m.options, self)
}

// member describes this rank to the others.
func (p *Prepared) member(f backend.Facts) (ranks.Member, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	sum, err := p.Model.Contents()
	if err != nil {
		return ranks.Member{}, err
	}
	kernels, err := p.kernels(f)
	if err != nil {
		return ranks.Member{}, err
	}
	return ranks.Member{
		Rank: p.setup.Place.Rank, World: p.setup.Place.World, Host: host, PID: os.Getpid(),
		Version: p.setup.Version, Profile: p.Profile.Hash(), Checkpoint: fmt.Sprintf("%x", sum), Backend: kernels,
	}, nil
}

// kernels returns the backend's name and, where it has several, the variant of its kernels on a machine.
func (p *Prepared) kernels(f backend.Facts) (string, error) {
	set := p.Profile.CPU.Variant
	if set == "auto" {
		set = ""
	}
	name := p.Opener.Name()
	l, err := p.Opener.Layout(f, backend.Settings{Variant: set})
	if err != nil {
		return "", err
	}
	for _, c := range l.Choices() {
		if c.Name == "variant" {
			name += " " + c.Value
		}
	}
	return name, nil
}

// OpenEngine opens the planned engine as config says, on all ranks if the model has several; this process is rank 0 then. The
// engine closes what connects them.
func (p *Prepared) OpenEngine(ctx context.Context, config engine.Config) (*engine.Engine, error) {
	if p.Profile.Parallel.Ranks() == 1 {
		return engine.Open(ctx, config)
	}
	m, err := p.openFabric()
	if err != nil {
		return nil, err
	}
	self, err := p.member(p.Plan.Facts)
	if err != nil {
		return nil, err
	}
	l, err := m.listen(self)
	if err != nil {
		return nil, err
	}
	eng, err := p.openRanks(ctx, config, m, l)
	if err != nil {
		l.Fail(err)
		return nil, err
	}
	return eng, nil
}

func (p *Prepared) openRanks(ctx context.Context, config engine.Config, m *meeting, l *ranks.Leader) (*engine.Engine, error) {
	log := p.setup.Log
	log.Info("waiting for the other ranks", "ranks", m.place.World, "address", l.Addr().String(), "at_most", m.options.Wait.String())
	ticket, err := m.session.Ticket()
	if err != nil {
		return nil, err
	}
	decisions, err := json.Marshal(p.Plan.Decisions())
	if err != nil {
		return nil, err
	}
	if err := l.Gather(ctx, ranks.Decided{Decisions: decisions, Ticket: ticket}, p.digest); err != nil {
		return nil, err
	}
	g, err := m.session.Connect(ticket, p.places().Tensor, p.places().Pipeline, m.options.Wait)
	if err != nil {
		return nil, err
	}
	log.Info("all ranks are there", "ranks", m.place.World, "collectives", m.session.Library())
	if p.setup.Drain != nil {
		l.OnDrain(func(who string) {
			log.Info("draining, because another rank was asked to end", "rank", who)
			p.setup.Drain()
		})
	}
	if err := p.bind(p.rank); err != nil {
		return nil, err
	}
	config = p.rankConfig(config, p.rank, g)
	config.Ranks = &engine.Ranks{Leader: l, Places: p.places(), Close: m.session.Close}
	load, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	l.OnFail(func(err error) { stop(err) }) // a rank that is gone ends the load of the others
	var eng *engine.Engine
	abandoned, err := orAbandon(load, func() (err error) { eng, err = engine.Open(load, config); return err })
	if abandoned {
		return nil, &hangingError{err}
	}
	return eng, err
}

// hangingError is why a load was abandoned whose device hangs: the process must exit.
type hangingError struct{ error }

func (e *hangingError) Unwrap() error { return e.error }

// bind binds this process to the NUMA nodes of its rank, if it has nodes of its own.
func (p *Prepared) bind(r *plan.RankPlan) error {
	if len(r.CPUs) == 0 {
		return nil
	}
	p.setup.Log.Info("bound to the CPUs of this rank's NUMA nodes", "cpus", fmt.Sprint(r.CPUs))
	return p.setup.Bind(r.CPUs)
}

// digest returns the digest of a rank's plan.
func (p *Prepared) digest(rank int) (string, error) {
	if rank == 0 && p.rank != nil {
		return p.rank.Digest(), nil
	}
	r, err := p.Plan.RankPlan(rank)
	if err != nil {
		return "", err
	}
	return r.Digest(), nil
}

// rankConfig returns config for one rank. Whether ops are timed stays.
func (p *Prepared) rankConfig(config engine.Config, r *plan.RankPlan, g backend.Group) engine.Config {
	timing := config.Options.Backend.TimeOps
	config.Options, config.Model, config.Account, config.Facts = r.Options, r.Model, r.Account, r.Facts
	config.Options.Backend.Group, config.Options.Backend.TimeOps = g, timing
	return config
}
