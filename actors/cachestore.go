package actors

import (
	"container/list"
	"time"
	"unsafe"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// kept is an answer that is given again. It does not change, but for what the
// store notes of it.
type kept struct {
	resp   *wire.Response
	events *node // the first event of a stream; nil = there are none
	cand   subjects.Candidate

	bytes int64 // all that it holds

	// The store's.
	key        cacheKey
	at         time.Time
	used, born *list.Element
}

// newKept makes an answer of a flight's end that can be kept. eventBytes is what
// its events hold.
func newKept(r *flown, events *node, eventBytes int64) *kept {
	resp := *r.resp
	resp.RateLimit = nil // of the provider at that time
	return &kept{resp: &resp, events: events, cand: r.cand, bytes: eventBytes + responseBytes(&resp) + keptOverhead}
}

// each gives the events of a stream, in order, until f fails.
func (k *kept) each(f func(*wire.Event) error) error {
	for n := k.events; n != nil; n = n.next.Load() {
		if err := f(&n.ev); err != nil {
			return err
		}
	}
	return nil
}

// keepable reports whether an answer may be given to others later: a complete one
// that the model ended by itself.
func keepable(resp *wire.Response) bool { return resp.Whole() }

// keptOverhead is what an entry holds beside its answer's own bytes: the structs,
// two list elements, and its place in a map of half-full groups.
const keptOverhead = int64(unsafe.Sizeof(kept{})+unsafe.Sizeof(wire.Response{})+2*unsafe.Sizeof(list.Element{})) +
	2*int64(unsafe.Sizeof(cacheKey{})+unsafe.Sizeof((*kept)(nil)))

// responseBytes is what an answer points at. Text that shares the memory of Raw
// counts twice: that is not known here.
func responseBytes(r *wire.Response) int64 {
	n := cap(r.Raw) + len(r.Text) + len(r.Model) + len(r.FinishReason)
	for _, w := range r.Warnings {
		n += len(w) + int(unsafe.Sizeof(w))
	}
	size := int64(n)
	for i := range r.ToolCalls {
		size += callBytes(&r.ToolCalls[i])
	}
	return size
}

func callBytes(c *subjects.ToolCall) int64 {
	return int64(len(c.ID)+len(c.Name)+len(c.Arguments)) + int64(unsafe.Sizeof(*c))
}

// answerStore keeps answers, the one that was used longest ago goes first, within
// a number of them, their bytes and their age. It belongs to the cache actor.
type answerStore struct {
	cfg  config.Cache
	byID map[cacheKey]*kept
	// used and born have the same entries, the one used last and the one that came
	// last in front.
	used, born list.List
	bytes      int64
	evicted    int64 // for want of room, since the start
}

func newAnswerStore(cfg config.Cache) *answerStore {
	return &answerStore{cfg: cfg, byID: map[cacheKey]*kept{}}
}

// get returns the answer of a key, nil where there is none.
func (s *answerStore) get(key cacheKey, now time.Time) *kept {
	s.expire(now)
	k := s.byID[key]
	if k != nil {
		s.used.MoveToFront(k.used)
	}
	return k
}

// add keeps an answer, if it is within bounds.
func (s *answerStore) add(key cacheKey, k *kept, now time.Time) {
	s.expire(now)
	if !s.fits(k) {
		return
	}
	if old := s.byID[key]; old != nil {
		s.remove(old)
	}
	k.key, k.at = key, now
	k.used, k.born = s.used.PushFront(k), s.born.PushFront(k)
	s.byID[key] = k
	s.bytes += k.bytes
	s.makeRoom()
}

func (s *answerStore) fits(k *kept) bool {
	return s.cfg.MaxEntries > 0 && k.bytes <= s.cfg.MaxEntryBytes && k.bytes <= s.cfg.MaxBytes
}

func (s *answerStore) makeRoom() {
	for len(s.byID) > s.cfg.MaxEntries || s.bytes > s.cfg.MaxBytes {
		s.remove(s.used.Back().Value.(*kept))
		s.evicted++
	}
}

// expire forgets what is older than the TTL: the oldest are at one end.
func (s *answerStore) expire(now time.Time) {
	for e := s.born.Back(); e != nil; e = s.born.Back() {
		k := e.Value.(*kept)
		if now.Sub(k.at) < s.cfg.TTL {
			return
		}
		s.remove(k)
	}
}

func (s *answerStore) remove(k *kept) {
	s.used.Remove(k.used)
	s.born.Remove(k.born)
	delete(s.byID, k.key)
	s.bytes -= k.bytes
}

// setBounds makes other bounds hold, for what is kept already too.
func (s *answerStore) setBounds(cfg config.Cache) {
	s.cfg = cfg
	for _, k := range s.byID {
		if !s.fits(k) {
			s.remove(k)
			s.evicted++
		}
	}
	s.makeRoom()
}

// clear forgets all and says how many those were.
func (s *answerStore) clear(now time.Time) int {
	s.expire(now)
	n := len(s.byID)
	clear(s.byID)
	s.used.Init()
	s.born.Init()
	s.bytes = 0
	return n
}

func (s *answerStore) metrics(now time.Time) subjects.CacheMetrics {
	s.expire(now)
	return subjects.CacheMetrics{
		Entries: len(s.byID), MaxEntries: s.cfg.MaxEntries, Bytes: s.bytes, MaxBytes: s.cfg.MaxBytes, Evicted: s.evicted,
	}
}
