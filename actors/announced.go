package actors

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

// Outside providers are programs that announce themselves every ten seconds on
// llm.provider_announce. The announced actor knows them; each refresh puts them
// into the router and the snapshot, where they are providers like any other.
//
// Every node hears every announcement and calls the programs itself: they are
// hosted on no node, and their pools are each node's own.

const (
	// announceSilence is how long a provider that says nothing is believed to live.
	announceSilence = 30 * time.Second
	// forgetSilent is how long one that is silent stays in the lists, with that
	// reason.
	forgetSilent = time.Hour
	// maxOutside bounds the outside providers of a node.
	maxOutside = 100
	// maxRefusals bounds the refusals that are remembered, to be logged once.
	maxRefusals = 1000
)

// outsider is one outside provider as it was last announced. Only heard changes.
type outsider struct {
	*announcement
	provider providers.Provider
	heard    *atomic.Int64 // unix nanoseconds; kept through announcements
}

// Messages of the announced actor.
type (
	// announce brings an announcement, or why it is none.
	announce struct {
		a     *announcement
		err   error
		reply chan<- announceReply
	}
	announceReply struct {
		err error
		// first says that this refusal was not heard before.
		first bool
	}
	// listOutside answers with the outside providers, by name.
	listOutside struct{ reply chan<- []*outsider }
)

func (m announce) fail(err error) { trySend(m.reply, announceReply{err: err}) }

// announced knows the outside providers.
type announced struct {
	now     func() time.Time
	make    func(*config.Provider, func() error) providers.Provider
	taken   func(id string) bool
	changed chan<- struct{}

	all     map[string]*outsider
	refused map[string]bool
}

func (a *announced) receive(_ *actor.PID, msg any) {
	switch m := msg.(type) {
	case announce:
		err := m.err
		if err == nil {
			err = a.take(m.a)
		}
		trySend(m.reply, announceReply{err, err != nil && a.firstRefusal(err.Error())})
	case listOutside:
		m.reply <- a.list()
	}
}

func (a *announced) firstRefusal(why string) bool {
	if a.refused[why] {
		return false
	}
	if len(a.refused) >= maxRefusals {
		clear(a.refused)
	}
	a.refused[why] = true
	return true
}

func (a *announced) take(m *announcement) error {
	id, now := m.cfg.ID, a.now()
	switch {
	case a.taken(id):
		return unfit("provider", "%q is built in or configured here; choose another name", id)
	case a.make == nil:
		return unfit("", "this node takes no outside providers")
	}
	old := a.all[id]
	if old == nil && len(a.all) >= maxOutside && !a.makeRoom(now) {
		return subjects.Errorf(subjects.KindPoolFull, "announcement: %d outside providers are there already, the bound; stop one, and try again half a minute later", maxOutside)
	}
	switch {
	case old == nil:
		heard := &atomic.Int64{}
		a.all[id] = &outsider{m, a.make(m.cfg, a.silence(heard)), heard}
	case !reflect.DeepEqual(old.announcement, m):
		a.all[id] = &outsider{m, a.make(m.cfg, a.silence(old.heard)), old.heard}
	case now.Sub(old.last()) <= announceSilence:
		old.heard.Store(now.UnixNano())
		return nil // nothing new
	}
	a.all[id].heard.Store(now.UnixNano())
	trySend(a.changed, struct{}{})
	return nil
}

func (o *outsider) last() time.Time { return time.Unix(0, o.heard.Load()) }

// silence tells whether a provider has been silent for too long. It is asked from
// any goroutine.
func (a *announced) silence(heard *atomic.Int64) func() error {
	now := a.now
	return func() error {
		if now().Sub(time.Unix(0, heard.Load())) > announceSilence {
			return subjects.Errorf(subjects.KindProviderUnavailable, "it has not announced itself for more than %s; start its program again", announceSilence)
		}
		return nil
	}
}

// makeRoom forgets the one that has been silent for longest, if there is one.
func (a *announced) makeRoom(now time.Time) bool {
	var silent *outsider
	for _, o := range a.all {
		if now.Sub(o.last()) > announceSilence && (silent == nil || o.last().Before(silent.last())) {
			silent = o
		}
	}
	if silent != nil {
		delete(a.all, silent.cfg.ID)
	}
	return silent != nil
}

func (a *announced) list() []*outsider {
	now := a.now()
	var out []*outsider
	for id, o := range a.all {
		if now.Sub(o.last()) > forgetSilent {
			delete(a.all, id)
			continue
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(x, y *outsider) int { return strings.Compare(x.cfg.ID, y.cfg.ID) })
	return out
}

// Announce takes an announcement. An error says why it is refused; it is logged
// once.
func (e *Engine) Announce(ctx context.Context, body []byte) error {
	a, err := readAnnouncement(body)
	got, asked := ask(ctx, e.sys, e.announced, func(r chan<- announceReply) any { return announce{a, err, r} })
	if asked != nil {
		return asked
	}
	if got.first {
		e.log.Warn("an announcement of an outside provider is refused", "error", got.err)
	}
	if got.err == nil && !(*e.snapshot.Load())[a.cfg.ID].Available {
		trySend(e.news, struct{}{}) // its program was started again
	}
	return got.err
}

// refreshOutside looks at the outside providers alone: one that is new is there
// at once.
func (e *Engine) refreshOutside() {
	e.readOutside()
	ctx, cancel := context.WithTimeout(e.base, checkTimeout)
	defer cancel()
	old := *e.snapshot.Load()
	snap := make(routing.Snapshot, len(old))
	for id, st := range old {
		if e.setup().provider(id) != nil {
			snap[id] = st
		}
	}
	for id, o := range e.setup().outside {
		snap[id] = e.look(ctx, id, o.provider, nil)
	}
	e.replaceSnapshot(snap)
}

// readOutside takes over what the announced actor knows. The router learns of a
// provider before its state is in the snapshot; until then it cannot serve.
func (e *Engine) readOutside() {
	ctx, cancel := context.WithTimeout(e.base, time.Second)
	defer cancel()
	list, err := ask(ctx, e.sys, e.announced, func(r chan<- []*outsider) any { return listOutside{r} })
	if err != nil {
		return
	}
	now := e.setup()
	next := make(map[string]*outsider, len(list))
	same := len(list) == len(now.outside)
	for _, o := range list {
		next[o.cfg.ID] = o
		same = same && now.outside[o.cfg.ID] == o
	}
	if same {
		return
	}
	e.current.Store(newSetup(now.cfg, now.providers, next))
	for key, pool := range *e.admission.pools.Load() {
		if o := next[key.provider]; o != nil && o != now.outside[key.provider] {
			e.sys.send(pool, setCap{e.capOf(key.provider, key.model)})
		}
	}
	for id, o := range next {
		if now.outside[id] != o {
			e.log.Info("an outside provider is new, or announces something new", "provider", id, "account", o.cfg.Account, "models", o.cfg.AvailableModels)
		}
	}
}

func (e *Engine) capOf(provider, model string) int { return e.setup().capOf(provider, model) }

func (e *Engine) startAnnounced() {
	e.news = make(chan struct{}, 1)
	e.admission.capOf = e.capOf
	e.announced = e.sys.spawn(&announced{
		now: time.Now, make: e.o.Outside, changed: e.news,
		taken: func(id string) bool { return e.setup().cfg.Providers[id] != nil },
		all:   map[string]*outsider{}, refused: map[string]bool{},
	})
}
