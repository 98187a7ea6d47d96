package actors

import (
	"context"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// cache is the calls' side of the cache actor: answers that are kept for an hour,
// and flights, which are answers on their way (flight.go). Safe for concurrent use.
type cache struct {
	sys *system
	pid *actor.PID
}

func newCache(sys *system, cfg config.Cache) *cache {
	c := &cache{sys: sys}
	c.pid = sys.spawn(newCacheActor(c, cfg))
	return c
}

// looked is what a look has found: either kept or seat is not nil.
type looked struct {
	kept *kept // a hit
	seat *seat
	// leads says that the seat's flight is new, and that this asker must run its
	// carrier.
	leads bool
}

// look finds the kept answer of a key, a seat in the flight that is under way to
// it, or else makes a flight. The error is the cause of ctx's end, or an actor's
// panic; then the asker has no seat.
//
// lane keeps flights apart, and not answers: a call does not wait for one that
// stands in a longer line than its own would be.
func (c *cache) look(ctx context.Context, key cacheKey, lane string) (looked, error) {
	if ctx.Err() != nil {
		return looked{}, context.Cause(ctx)
	}
	s := &seat{key: key, lane: lane, wake: make(chan struct{}, 1)}
	s.until, _ = ctx.Deadline()
	c.sys.send(c.pid, s)
	select {
	case <-s.wake: // by the actor, or by the carrier of the flight that it gave a seat in
	case <-ctx.Done():
		c.sys.send(c.pid, lookLeft{s, context.Cause(ctx)})
		return looked{}, context.Cause(ctx)
	}
	switch {
	case s.err != nil:
		return looked{}, s.err
	case s.kept != nil:
		return looked{kept: s.kept}, nil
	}
	return looked{seat: s, leads: s.first}, nil
}

// clear forgets the kept answers and says how many those were. Of the flights
// that run none is joined or kept any more: they may have begun with a
// configuration that is no more in force.
func (c *cache) clear(ctx context.Context) (entries int, err error) {
	return ask(ctx, c.sys, c.pid, func(r chan<- int) any { return clearCache{r} })
}

// metrics counts what the cache has done since the node started.
func (c *cache) metrics(ctx context.Context) (subjects.CacheMetrics, error) {
	return ask(ctx, c.sys, c.pid, func(r chan<- subjects.CacheMetrics) any { return cacheStats{r} })
}

// reconfigure changes the bounds. What is above them goes.
func (c *cache) reconfigure(cfg config.Cache) { c.sys.send(c.pid, cacheBounds{cfg}) }

// Messages of the cache actor. A *seat is a look.
type (
	// lookLeft takes back a look whose asker has not waited for the reply.
	lookLeft struct {
		s     *seat
		cause error
	}
	// seatLeft is answered by whether it was the flight's last seat.
	seatLeft struct {
		s     *seat
		cause error
		reply chan<- bool
	}
	// landed says that a flight is about to end; kept is its answer, where it may
	// be kept.
	landed struct {
		f    *flight
		end  *flown
		kept *kept
	}
	clearCache  struct{ reply chan<- int }
	cacheStats  struct{ reply chan<- subjects.CacheMetrics }
	cacheBounds struct{ cfg config.Cache }
)

func (s *seat) fail(err error) {
	s.err = err
	trySend(s.wake, struct{}{})
}

// flightKey says which calls may share an attempt.
type flightKey struct {
	answer cacheKey
	lane   string
}

// cacheActor owns the kept answers, knows the flights that can be joined, and
// gives the seats in them.
type cacheActor struct {
	c       *cache
	store   *answerStore
	flights map[flightKey]*flight
	// hits, misses and shared count looks: a kept answer, a new flight, a seat in
	// another's.
	hits, misses, shared int64
}

func newCacheActor(c *cache, cfg config.Cache) *cacheActor {
	return &cacheActor{c: c, store: newAnswerStore(cfg), flights: map[flightKey]*flight{}}
}

func (a *cacheActor) receive(_ *actor.PID, msg any) {
	switch m := msg.(type) {
	case *seat:
		a.look(m)
	case lookLeft:
		a.takeBack(m)
	case seatLeft:
		trySend(m.reply, a.leave(m.s, m.cause))
	case *landed:
		a.land(m)
	case clearCache:
		clear(a.flights)
		trySend(m.reply, a.store.clear(time.Now()))
	case cacheStats:
		trySend(m.reply, a.metrics(time.Now()))
	case cacheBounds:
		a.store.setBounds(m.cfg)
	}
}

// look answers a look. What it writes into the seat is written before the seat is
// among the flight's: from then on the carrier may wake the asker.
func (a *cacheActor) look(s *seat) {
	if s.kept = a.store.get(s.key, time.Now()); s.kept != nil {
		a.hits++
	} else if f := a.flights[flightKey{s.key, s.lane}]; f != nil && s.take(f) {
		a.shared++
		seats := append(slices.Clip(*f.seats.Load()), s)
		f.seats.Store(&seats)
	} else {
		a.misses++
		f = newFlight(a.c, flightKey{s.key, s.lane}, a.store.cfg.MaxEntryBytes)
		s.first = true
		s.take(f)
		f.first[0], f.alone = s, f.first[:]
		f.seats.Store(&f.alone)
		a.flights[f.key] = f
	}
	trySend(s.wake, struct{}{})
}

// take points the seat at the flight's beginning; false = nobody can join any more.
func (s *seat) take(f *flight) bool {
	if s.at = f.head.Load(); s.at == nil {
		return false
	}
	s.flight = f
	if !s.until.IsZero() {
		f.until.Store(max(f.until.Load(), s.until.UnixNano()))
	}
	return true
}

func (a *cacheActor) takeBack(m lookLeft) {
	s := m.s
	switch {
	case s.flight == nil:
	case s.first: // nobody will carry it
		a.land(&landed{f: s.flight, end: &flown{err: m.cause}})
		s.flight.publish(&flown{err: m.cause})
	default:
		a.leave(s, m.cause)
	}
}

func (a *cacheActor) leave(s *seat, cause error) (last bool) {
	f := s.flight
	old := *f.seats.Load()
	rest := slices.DeleteFunc(slices.Clone(old), func(o *seat) bool { return o == s })
	f.seats.Store(&rest)
	if len(rest) > 0 || f.ended.Load() != nil {
		return false
	}
	a.forget(f)
	f.cancel(cause)
	return true
}

// land takes a flight out, and keeps its answer where nothing came in between.
func (a *cacheActor) land(m *landed) {
	known := a.forget(m.f)
	if known && m.kept != nil {
		a.store.add(m.f.key.answer, m.kept, time.Now())
	}
	if !m.end.shared(false) { // the others look again, and are counted then
		for _, s := range *m.f.seats.Load() {
			if !s.first {
				a.shared--
			}
		}
	}
}

func (a *cacheActor) forget(f *flight) (known bool) {
	known = a.flights[f.key] == f
	if known {
		delete(a.flights, f.key)
	}
	return known
}

func (a *cacheActor) metrics(now time.Time) subjects.CacheMetrics {
	m := a.store.metrics(now)
	m.Hits, m.Misses, m.Shared = a.hits, a.misses, a.shared
	if all := m.Hits + m.Misses + m.Shared; all > 0 {
		m.HitRatio = float64(m.Hits+m.Shared) / float64(all)
	}
	return m
}
