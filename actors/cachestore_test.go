package actors

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// naiveStore is what an answerStore must be, in the plainest way: a list in the
// order of use, the last one in front.
type naiveStore struct {
	cfg     config.Cache
	entries []naiveEntry
	evicted int64
}

type naiveEntry struct {
	key cacheKey
	k   *kept
	at  time.Time
}

func (s *naiveStore) drop(gone func(naiveEntry) bool) { s.entries = slices.DeleteFunc(s.entries, gone) }

func (s *naiveStore) expire(now time.Time) {
	s.drop(func(e naiveEntry) bool { return !now.Before(e.at.Add(s.cfg.TTL)) })
}

func (s *naiveStore) bytes() (sum int64) {
	for _, e := range s.entries {
		sum += e.k.bytes
	}
	return sum
}

func (s *naiveStore) fits(k *kept) bool {
	return s.cfg.MaxEntries > 0 && s.cfg.MaxBytes > 0 && k.bytes <= min(s.cfg.MaxBytes, s.cfg.MaxEntryBytes)
}

func (s *naiveStore) makeRoom() {
	for len(s.entries) > s.cfg.MaxEntries || s.bytes() > s.cfg.MaxBytes {
		s.entries = s.entries[:len(s.entries)-1]
		s.evicted++
	}
}

func (s *naiveStore) get(key cacheKey, now time.Time) *kept {
	s.expire(now)
	for i, e := range s.entries {
		if e.key == key {
			s.entries = slices.Insert(slices.Delete(s.entries, i, i+1), 0, e)
			return e.k
		}
	}
	return nil
}

func (s *naiveStore) add(key cacheKey, k *kept, now time.Time) {
	s.expire(now)
	if s.fits(k) {
		s.drop(func(e naiveEntry) bool { return e.key == key })
		s.entries = slices.Insert(s.entries, 0, naiveEntry{key, k, now})
		s.makeRoom()
	}
}

func (s *naiveStore) setBounds(cfg config.Cache) {
	s.cfg = cfg
	before := len(s.entries)
	s.drop(func(e naiveEntry) bool { return !s.fits(e.k) })
	s.evicted += int64(before - len(s.entries))
	s.makeRoom()
}

// TestAnswerStore drives a store and the naive one with the same random steps.
func TestAnswerStore(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		bounds := func() config.Cache {
			return config.Cache{
				MaxEntries: rng.IntN(12), MaxBytes: rng.Int64N(4000), MaxEntryBytes: 1 + rng.Int64N(1000),
				TTL: time.Duration(1+rng.IntN(60)) * time.Second,
			}
		}
		cfg := bounds()
		s, n := newAnswerStore(cfg), &naiveStore{cfg: cfg}
		now := time.Now()
		for step := range 2000 {
			now = now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
			key := cacheKey{byte(rng.IntN(20))}
			switch rng.IntN(40) {
			case 0:
				cfg = bounds()
				s.setBounds(cfg)
				n.setBounds(cfg)
			case 1:
				n.expire(now)
				if got, want := s.clear(now), len(n.entries); got != want {
					t.Fatalf("seed %d, step %d: clear says %d, want %d", seed, step, got, want)
				}
				n.entries = nil
			case 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14:
				k := &kept{bytes: rng.Int64N(1100)}
				s.add(key, k, now)
				n.add(key, k, now)
			default:
				if got, want := s.get(key, now), n.get(key, now); got != want {
					t.Fatalf("seed %d, step %d: get gives %p, want %p", seed, step, got, want)
				}
			}
			n.expire(now)
			want := subjects.CacheMetrics{
				Entries: len(n.entries), MaxEntries: cfg.MaxEntries, Bytes: n.bytes(), MaxBytes: cfg.MaxBytes, Evicted: n.evicted,
			}
			if got := s.metrics(now); got != want || s.used.Len() != len(n.entries) || s.born.Len() != len(n.entries) {
				t.Fatalf("seed %d, step %d: %+v, want %+v", seed, step, got, want)
			}
		}
	}
}

// TestKept: the headers of the provider's limits go, the rest stays, and all of
// it counts.
func TestKept(t *testing.T) {
	t.Parallel()
	resp := &wire.Response{
		Wire: wire.OpenAIChat, Raw: make([]byte, 100, 200), Text: "text", FinishReason: "stop", Model: "model", Warnings: []string{"careful"},
		ToolCalls: []subjects.ToolCall{{ID: "id", Name: "name", Arguments: "{}"}}, RateLimit: map[string]string{"x-ratelimit-limit": "1"},
	}
	small := newKept(&flown{resp: resp}, nil, 0)
	if small.resp.RateLimit != nil || resp.RateLimit == nil || small.resp.Text != "text" {
		t.Errorf("%+v is kept of %+v", small.resp, resp)
	}
	if large := newKept(&flown{resp: resp}, nil, 1000); large.bytes != small.bytes+1000 {
		t.Errorf("1000 bytes of events make %d of %d", large.bytes, small.bytes)
	}
	for name, longer := range map[string]func(*wire.Response){
		"raw":     func(r *wire.Response) { r.Raw = make([]byte, 1, 200+10) },
		"text":    func(r *wire.Response) { r.Text += "0123456789" },
		"model":   func(r *wire.Response) { r.Model += "0123456789" },
		"warning": func(r *wire.Response) { r.Warnings = []string{"careful" + "0123456789"} },
		"arguments": func(r *wire.Response) {
			r.ToolCalls = []subjects.ToolCall{{ID: "id", Name: "name", Arguments: "{}0123456789"}}
		},
	} {
		other := *resp
		longer(&other)
		if got := newKept(&flown{resp: &other}, nil, 0).bytes; got != small.bytes+10 {
			t.Errorf("10 more bytes of %s make %d of %d", name, got, small.bytes)
		}
	}
}

func TestKeptEach(t *testing.T) {
	t.Parallel()
	f := newFlight(nil, flightKey{}, 1<<20)
	f.seats.Store(&[]*seat{})
	head := f.head.Load()
	for i := range 100 {
		f.event(&wire.Event{Text: fmt.Sprint(i)})
	}
	k := newKept(&flown{resp: &wire.Response{}}, head.Load(), f.size)
	for range 2 {
		n := 0
		if err := k.each(func(ev *wire.Event) error { n++; return sameText(ev, n-1) }); err != nil || n != 100 {
			t.Errorf("%d events, %v", n, err)
		}
	}
	n := 0
	if err := k.each(func(*wire.Event) error { n++; return errGone }); !errors.Is(err, errGone) || n != 1 {
		t.Errorf("an error of the reader: %d events, %v", n, err)
	}
}

func sameText(ev *wire.Event, i int) error {
	if ev.Text != fmt.Sprint(i) {
		return fmt.Errorf("event %d is %q", i, ev.Text)
	}
	return nil
}
