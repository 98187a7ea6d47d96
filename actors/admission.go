package actors

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// maxPools bounds the model pools of a node: callers may name models freely
// (custom/<anything>), and each pair has a pool. Idle ones make room.
const maxPools = 1024

// admission gives calls their slots: two tiers, model pool and class pool,
// without hold-and-wait. It is the calls' side of the pool actors.
type admission struct {
	sys      *system
	director *actor.PID
	// pools is what the director has made; it alone replaces the map.
	pools   atomic.Pointer[map[poolKey]*actor.PID]
	classes map[string]*actor.PID
	// capOf is the bound of a pair's pool.
	capOf func(provider, model string) int
}

type poolKey struct{ provider, model string }

func newAdmission(sys *system, cfg *config.Pools, emit func(string, any)) *admission {
	a := &admission{sys: sys, classes: make(map[string]*actor.PID, len(subjects.Classes)), capOf: cfg.Cap}
	a.pools.Store(&map[poolKey]*actor.PID{})
	for _, class := range subjects.Classes {
		a.classes[class] = sys.spawn(&classPool{
			sys: sys, class: class, slots: cfg.Classes[class].Slots,
			grants: map[uint64]*actor.PID{}, waits: map[*actor.PID]bool{},
		})
	}
	a.director = sys.spawn(&director{a: a, cfg: cfg, emit: emit})
	return a
}

// slot is what a call holds while it talks to a provider.
type slot struct {
	a    *admission
	pool *actor.PID
	t    *ticket
}

// release gives the slots back, class first, then provider. Saying it twice, or
// on a nil slot, changes nothing.
func (s *slot) release() {
	if s != nil {
		s.a.sys.send(s.pool, done{s.t})
	}
}

// acquire waits in line for a slot of the (provider, model) pool and one of the
// class. When ctx ends first the call leaves the line at once and the error is
// ctx's; POOL_FULL comes at once when the line is at its bound.
func (a *admission) acquire(ctx context.Context, provider, model, class string) (*slot, error) {
	for {
		pool, err := a.pool(ctx, poolKey{provider, model})
		if err != nil {
			return nil, err
		}
		t := &ticket{class: class, granted: make(chan error, 1)}
		s := &slot{a: a, pool: pool, t: t}
		a.sys.send(pool, &acquire{t})
		select {
		case err = <-t.granted:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, errRetired):
			continue
		}
		s.release() // a grant that arrives for a caller who has gone is returned
		return nil, err
	}
}

func (a *admission) pool(ctx context.Context, key poolKey) (*actor.PID, error) {
	if pid := (*a.pools.Load())[key]; pid != nil {
		return pid, nil
	}
	made, err := ask(ctx, a.sys, a.director, func(r chan<- poolMade) any { return makePool{key, r} })
	if err != nil {
		return nil, err
	}
	return made.pid, made.err
}

// stats asks every pool for its state; a pool that does not answer before ctx
// ends is left out.
func (a *admission) stats(ctx context.Context) (map[string]subjects.PoolHealth, map[string]subjects.ClassHealth) {
	queued := map[string]int{}
	pools := map[string]subjects.PoolHealth{}
	for key, pid := range *a.pools.Load() {
		st, err := ask(ctx, a.sys, pid, func(r chan<- poolState) any { return poolStats{r} })
		if err != nil {
			continue
		}
		pools[key.provider+"/"+key.model] = st.PoolHealth
		for class, n := range st.queuedByClass {
			queued[class] += n
		}
	}
	classes := map[string]subjects.ClassHealth{}
	for class, pid := range a.classes {
		st, err := ask(ctx, a.sys, pid, func(r chan<- subjects.ClassHealth) any { return classStats{r} })
		if err != nil {
			continue
		}
		st.Queued = queued[class]
		classes[class] = st
	}
	return pools, classes
}

// reconfigure changes the bounds. Slots that are held above a lower one stay held.
func (a *admission) reconfigure(cfg *config.Pools) {
	a.sys.send(a.director, newBounds{cfg})
	for class, pid := range a.classes {
		a.sys.send(pid, setSlots{cfg.Classes[class].Slots})
	}
	for key, pid := range *a.pools.Load() {
		a.sys.send(pid, newBounds{cfg})
		a.sys.send(pid, setCap{a.capOf(key.provider, key.model)})
	}
}

// Messages of the director.
type (
	// newBounds comes from an edit of the configuration; model pools get it too.
	newBounds struct{ cfg *config.Pools }
	makePool  struct {
		key   poolKey
		reply chan<- poolMade
	}
	poolMade struct {
		pid *actor.PID
		err error
	}
	// swept says which pools were idle and have refused further tickets.
	swept struct{ idle map[poolKey]bool }
	// dropPool stops a pool that was retired a while ago.
	dropPool struct{ pid *actor.PID }
)

func (m makePool) fail(err error) { trySend(m.reply, poolMade{err: err}) }

// director makes model pools on first use and takes idle ones away when there
// are too many.
type director struct {
	a        *admission
	cfg      *config.Pools
	emit     func(string, any)
	sweeping bool
}

func (d *director) receive(self *actor.PID, msg any) {
	switch m := msg.(type) {
	case makePool:
		trySend(m.reply, d.make(self, m.key))
	case newBounds:
		d.cfg = m.cfg
	case swept:
		d.sweeping = false
		d.remove(self, m.idle)
	case dropPool:
		d.a.sys.stop(m.pid)
	}
}

func (d *director) make(self *actor.PID, key poolKey) poolMade {
	old := *d.a.pools.Load()
	if pid := old[key]; pid != nil {
		return poolMade{pid: pid}
	}
	if len(old) >= maxPools*3/4 && !d.sweeping {
		d.sweeping = true
		go d.sweep(self, old)
	}
	if len(old) >= maxPools {
		return poolMade{err: subjects.Errorf(subjects.KindPoolFull,
			"%d different models are in use, the bound; use fewer models at once or try again later", maxPools)}
	}
	lanes := make([]*lane, 0, len(subjects.Classes))
	for _, class := range subjects.Classes {
		lanes = append(lanes, &lane{class: class, weight: d.cfg.Classes[class].Weight})
	}
	pid := d.a.sys.spawn(&modelPool{
		sys: d.a.sys, provider: key.provider, model: key.model,
		cap: d.a.capOf(key.provider, key.model), maxQueue: d.cfg.MaxQueue,
		saturatedAfter: d.cfg.SaturatedAfter, classPools: d.a.classes, emit: d.emit, lanes: lanes,
	})
	d.replace(func(m map[poolKey]*actor.PID) { m[key] = pid })
	return poolMade{pid: pid}
}

func (d *director) replace(change func(map[poolKey]*actor.PID)) {
	old := *d.a.pools.Load()
	m := make(map[poolKey]*actor.PID, len(old)+1)
	for k, v := range old {
		m[k] = v
	}
	change(m)
	d.a.pools.Store(&m)
}

// sweep runs beside the director: it asks each pool to retire if idle.
func (d *director) sweep(self *actor.PID, pools map[poolKey]*actor.PID) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	idle := map[poolKey]bool{}
	for key, pid := range pools {
		if ok, err := ask(ctx, d.a.sys, pid, func(r chan<- bool) any { return retire{r} }); err == nil && ok {
			idle[key] = true
		}
	}
	d.a.sys.send(self, swept{idle})
}

// remove forgets retired pools. Each is stopped a minute later, so that a
// ticket under way to it is still refused and not lost.
func (d *director) remove(self *actor.PID, idle map[poolKey]bool) {
	d.replace(func(m map[poolKey]*actor.PID) {
		for key := range idle {
			d.a.sys.after(time.Minute, self, dropPool{m[key]})
			delete(m, key)
		}
	})
}
