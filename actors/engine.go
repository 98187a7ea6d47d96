// Package actors says who owns what state, and runs the calls.
//
// Two sentences decide where code goes. Actors own state: the slots of a model
// pool and who waits for them (pool.go), the slots of a class (class.go), what
// holds a provider back (account.go), what budgets have left (ledger.go), the kept
// answers and who shares one (cache.go), which calls run (calls.go), which usage
// records wait for a log that cannot be written (usagelog.go), how far the
// database is (aggregator.go). An actor never blocks: no I/O, no sleeping, no
// waiting inside receive. Calls own time: a Call is one goroutine with a context;
// it waits, asks actors by message with a reply channel of one slot, and gives
// back what it took in one defer (call.go). What it does with providers is its
// work (work.go), in the same goroutine, or in one of its own where calls that ask
// for the same thing share it (share.go).
//
// # The life of a call
//
//	arrived → admitted → judged → routed → (budget → in line → attempt → backing off)* → recorded → answered
//	                                     └→ from the cache, or by another call's work → recorded → answered
//
// Judged: by the hooks (callhooks.go) and by the budgets.
// It fails from any of these: a bad request, a full node, a draining one or a
// log that cannot be written before a token is spent; a full queue, a deadline,
// a cancel or a caller who left at any time; a provider's error after its tries
// are used up; a panic. On each path the slots go back, the call leaves the
// registry, a record is written if a provider was reached, and exactly one
// terminal message is sent.
package actors

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/hooks"
	"github.com/sluice-llm/sluice/persistence"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

// Options is what an Engine is made of. All fields are needed but those that say
// what nil means.
type Options struct {
	Config *config.Config
	// Providers makes those of the configuration; mock is what the mock provider asks.
	Providers func(mock hooks.MockService) map[string]providers.Provider
	// Mock, Budget and Sensitivity are the injection points that an embedder
	// implements; nil = as the configuration says.
	Mock        hooks.MockService
	Budget      hooks.BudgetTracker
	Sensitivity hooks.SensitivityClassifier
	// Reload loads the configuration anew (llm.admin.reload); nil = it cannot be.
	Reload func(context.Context) (*subjects.ReloadReply, error)
	// Hosts says whether this node hosts a provider; nil = it hosts all.
	Hosts func(provider string) bool
	JS    jetstream.JetStream
	Store *persistence.Store
	Log   *slog.Logger
	// Emit publishes an event; it must not block.
	Emit func(subject string, event any)
	// Outside makes the provider of what a program announced; alive says why the
	// program is taken for dead, or nil.
	Outside func(cfg *config.Provider, alive func() error) providers.Provider
	// Interest reports whether anybody still listens on a reply inbox; nil when
	// that cannot be known.
	Interest func(inbox string) bool
	// FreeSpace returns the free bytes of the disk that holds the data, if known.
	FreeSpace func() (free uint64, known bool)
	// Revive repairs a usage log that refuses every write; nil = it cannot be.
	Revive func() error
	// Spill is the file that takes the records which could not be stored before
	// the node ends; the next one stores them.
	Spill string
	// Hop carries calls to other nodes.
	Hop     subjects.Transport
	Version string
}

// Engine runs the calls of one node. Safe for concurrent use.
type Engine struct {
	o       Options
	log     *slog.Logger
	started time.Time

	sys       *system
	admission *admission
	accounts  *accounts
	cache     *cache
	ledger    *ledger
	hooks     *hookDesk
	saver     *stateSaver
	edits     chan configEdit
	held      chan struct{}                 // an account holds something back, or not any more
	looking   map[string]chan routing.State // checks under way; keepStatus' own
	calls     *actor.PID
	usage     *usageLog
	progress  *actor.PID
	peers     *actor.PID
	announced *actor.PID
	news      chan struct{} // an outside provider came, came back or changed
	node      string        // this node's id
	changed   chan struct{} // a peer came, went or changed
	board     *actor.PID
	snapshot  atomic.Pointer[routing.Snapshot] // the board's
	current   atomic.Pointer[setup]
	crew      *crew

	// inFlight and bytes are gauges of what the node holds, checked on arrival.
	inFlight atomic.Int64
	bytes    atomic.Int64
	draining atomic.Bool

	base context.Context
	stop context.CancelCauseFunc
	work sync.WaitGroup // background goroutines
}

var errStopped = subjects.Errorf(subjects.KindCancelled, "the node was stopped while the call ran")

// NewEngine starts the actors and the background work. Close ends them.
func NewEngine(o Options) *Engine {
	e := &Engine{o: o, log: o.Log, started: time.Now(), sys: newSystem(o.Log), crew: newCrew(), looking: map[string]chan routing.State{}}
	if e.o.Reload == nil {
		e.o.Reload = noReload
	}
	e.snapshot.Store(&routing.Snapshot{})
	e.board = e.sys.spawn(&board{stands: map[string]standing{}, out: &e.snapshot})
	e.base, e.stop = context.WithCancelCause(context.Background())
	e.admission = newAdmission(e.sys, &o.Config.Pools, o.Emit)
	e.calls = e.sys.spawn(newCalls())
	e.startPolicies()
	e.current.Store(newSetup(o.Config, o.Providers(e.hooks.mock()), nil))
	stream := newAcks(o.JS.Conn())
	e.background(func() { stream.run(e.base) })
	e.usage = newUsageLog(e.sys, stream, o.Log, o.Config.Usage.MaxPending, o.Emit)
	e.usage.spill = o.Spill
	e.noteLogged()
	e.progress = e.sys.spawn(&aggregator{})
	e.changed = make(chan struct{}, 1)
	e.node = subjects.NewCallID()
	e.peers = e.sys.spawn(&peers{nodes: map[string]peer{}, changed: e.changed})
	e.startAnnounced()
	e.refresh()
	p := &pump{sys: e.sys, actor: e.progress, js: o.JS, store: o.Store, fresh: &e.usage.fresh, log: o.Log, again: make(chan struct{}, 1)}
	if o.Revive != nil {
		e.usage.revive = func() error {
			defer trySend(p.again, struct{}{}) // its consumer is gone with the old store
			return o.Revive()
		}
	}
	e.background(func() { p.run(e.base) })
	e.background(func() { e.usage.unspill(e.base) })
	e.background(func() { e.keepStatus() })
	e.background(func() { e.every(time.Second, e.watchDisk) })
	e.background(func() { e.every(time.Hour, e.tidy) })
	if o.Interest != nil {
		e.background(func() { e.watchInboxes() })
	}
	e.watchDisk()
	return e
}

// startPolicies starts what decides beside the pools whether a call may go
// somewhere: the accounts with what they remember from before, the budgets, the
// cache, the hooks.
func (e *Engine) startPolicies() {
	saved, err := e.o.Store.States()
	if err != nil {
		e.log.Error("what was known of breakers and quotas cannot be read; they start anew", "error", err)
	}
	e.edits, e.held = make(chan configEdit), make(chan struct{}, 1)
	e.saver = newStateSaver(e.sys, e.o.Store, e.log)
	e.accounts = newAccounts(e.sys, accountOptions{
		emit: e.o.Emit, save: e.saver.save, saved: saved, cfg: e.o.Config,
		publish: func(id string, st standing) {
			e.sys.send(e.board, stands{id, st})
			trySend(e.held, struct{}{})
		},
	})
	e.accounts.restore()
	e.cache = newCache(e.sys, e.o.Config.Cache)
	e.ledger = newLedger(e.sys, e.o.Config, ledgerOptions{emit: e.o.Emit, spent: e.spentBefore, log: e.log})
	e.hooks = newHookDesk(e.sys, e.o.Config, hookOptions{
		Mock: e.o.Mock, Budget: e.o.Budget, Sensitivity: e.o.Sensitivity, Transport: e.o.Hop, Log: e.log, Emit: e.o.Emit,
	})
}

// spentBefore is what the usage database has of a budget, once it has caught up
// with the log.
func (e *Engine) spentBefore(ctx context.Context, scope, id string) (tokens int64, cost subjects.USD, err error) {
	if err := e.reach(ctx); err != nil {
		return 0, 0, err
	}
	s, err := e.o.Store.Spent(scope, id)
	return s.Tokens, s.Cost, err
}

func (e *Engine) background(f func()) {
	e.work.Add(1)
	go func() {
		defer e.work.Done()
		f()
	}()
}

// tidy gives back space in the database and prunes its sums.
func (e *Engine) tidy() {
	if err := e.o.Store.GC(); err != nil {
		e.log.Warn("the usage database could not be tidied", "error", err)
	}
}

func (e *Engine) every(d time.Duration, f func()) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			f()
		case <-e.base.Done():
			return
		}
	}
}

// setup is what the newest configuration makes of the node.
func (e *Engine) setup() *setup { return e.current.Load() }

// refresh looks at each provider again and says when one came or went.
func (e *Engine) refresh() {
	e.readOutside()
	e.replaceSnapshot(e.lookAtAll(e.hostedElsewhere()))
}

// replaceSnapshot says which providers came or went. Of outside ones it says so,
// too, when they come for the first time.
func (e *Engine) replaceSnapshot(seen routing.Snapshot) {
	old := *e.snapshot.Load()
	for id, st := range seen {
		if was, ok := old[id]; ok && was.Available != st.Available || !ok && e.setup().isOutside(id) {
			e.o.Emit(subjects.ProviderStatus(id), &providerStatusEvent{Provider: id, Available: st.Available, Reason: st.Detail, At: subjects.Time{Time: time.Now()}})
		}
	}
	e.sys.send(e.board, sighted{seen})
}

// providerStatusEvent is the payload of llm.provider_status.<provider>.
type providerStatusEvent struct {
	Provider  string        `json:"provider"`
	Available bool          `json:"available"`
	Reason    string        `json:"reason,omitempty"`
	At        subjects.Time `json:"at"`
}

// watchInboxes notices NATS callers who have gone: nobody listens on the reply
// inbox in two looks, a second apart.
func (e *Engine) watchInboxes() {
	gone := map[*runningCall]bool{}
	e.every(time.Second, func() {
		running, err := ask(e.base, e.sys, e.calls, func(r chan<- []*runningCall) any { return listInboxes{r} })
		if err != nil {
			return
		}
		next := map[*runningCall]bool{}
		for _, r := range running {
			if e.o.Interest(r.inbox) {
				continue
			}
			next[r] = true
			if gone[r] {
				e.sys.send(e.calls, askerLeft{r, errGone})
			}
		}
		gone = next
	})
}

var errGone = subjects.Errorf(subjects.KindCancelled, "the caller went away")

// watchDisk closes the door for new calls while the disk is nearly full.
func (e *Engine) watchDisk() {
	free, known := e.o.FreeSpace()
	if !known {
		return
	}
	var full *subjects.Error
	if reserve := e.setup().cfg.Usage.ReserveBytes; int64(free) < reserve {
		full = subjects.Errorf(subjects.KindNoProvider,
			"the disk of the data folder has %d MiB free, less than the reserve of %d MiB (usage.reserve_bytes): no new call is started; free some space",
			free>>20, reserve>>20)
		full.RetryAfter = maxRetryDelay
	}
	e.sys.send(e.usage.keeper, diskState{full})
}

// Gauges counts what the node holds now, for $SRV.STATS.
func (e *Engine) Gauges() map[string]int64 {
	return map[string]int64{"inFlight": e.inFlight.Load(), "bytes": e.bytes.Load()}
}

// StopAccepting refuses every later call, and tells the other nodes.
func (e *Engine) StopAccepting() {
	if !e.draining.Swap(true) {
		e.sayStatus()
	}
}

// Drain refuses new calls and waits for the running ones; those still running
// when ctx ends are cancelled and waited for.
func (e *Engine) Drain(ctx context.Context) error {
	e.StopAccepting()
	idle := e.idle()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = ctx.Err()
		e.cutOff(idle)
	}
	e.flush()
	return err
}

// idle is closed once no call runs. It looks at the gauge: a WaitGroup may not
// be added to while it is waited for, and late calls still come, to be refused.
func (e *Engine) idle() <-chan struct{} {
	idle := make(chan struct{})
	go func() {
		t := time.NewTicker(2 * time.Millisecond)
		defer t.Stop()
		for e.inFlight.Load() > 0 {
			<-t.C
		}
		close(idle)
	}()
	return idle
}

// cutOff cancels the calls that run and waits for them, 5 s at most: their
// partial records are still written.
func (e *Engine) cutOff(idle <-chan struct{}) {
	e.sys.send(e.calls, cancelAll{errStopped})
	select {
	case <-idle:
	case <-time.After(5 * time.Second):
		e.log.Warn("calls still run after they were cancelled; they are left", "calls", e.inFlight.Load())
	}
}

// flush waits until the database holds what this node has logged, 5 s at most.
// What is left is in the stream and is applied at the next start.
func (e *Engine) flush() {
	ctx, cancel := context.WithTimeout(e.base, 5*time.Second)
	defer cancel()
	_ = e.reach(ctx)
}

// noteLogged takes the records that are in the stream at the start for this
// node's own: after a kill the database is behind, and a query waits for them.
func (e *Engine) noteLogged() {
	ctx, cancel := context.WithTimeout(e.base, time.Second)
	defer cancel()
	if stream, err := e.o.JS.Stream(ctx, subjects.UsageStream); err == nil {
		e.usage.noteSeq(stream.CachedInfo().State.LastSeq)
	}
}

// reach waits until the database holds the last record that this node logged.
func (e *Engine) reach(ctx context.Context) error {
	_, err := ask(ctx, e.sys, e.progress, func(r chan<- struct{}) any { return reached{e.usage.lastSeq.Load(), r} })
	return err
}

// Close ends the background work and the actors. Calls still running are
// cancelled; Drain first to let them finish.
func (e *Engine) Close() {
	e.StopAccepting()
	e.cutOff(e.idle())
	e.stop(errStopped)
	e.work.Wait()
	e.usage.rescue()
	e.hooks.close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := errors.Join(e.accounts.flush(ctx), e.saver.close(ctx)); err != nil {
		e.log.Error("the state of breakers and quotas could not be saved", "error", err)
	}
	e.crew.stop()
	e.sys.close()
}
