package persistence

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

// world is a stream and what the database must hold of it.
type world struct {
	t      *testing.T
	r      *rand.Rand
	s      *Store
	dir    string
	stream string
	log    []Entry // of the stream, sequences from 1
	ids    uint64
	must   map[uint64]*subjects.UsageRecord // by number: everything ever published
	states map[string]string                // all that were stored
}

var errAbort = errors.New("aborted")

// Whatever happens between the stream and the database, in any order: batches of
// all sizes, again, overlapping, with unreadable entries and repeated ids; aborted
// before the commit and after it; restarts; streams made anew or restored; states
// saved and old sums looked for in between. In the end everything published is
// counted once, and each step leaves a whole database.
func TestProperty(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &world{t: t, r: newRand(seed), dir: t.TempDir(), stream: "0", must: map[uint64]*subjects.UsageRecord{}, states: map[string]string{}}
			w.open()
			for step := range 120 {
				w.publish(w.r.IntN(20))
				switch w.r.IntN(30) {
				case 0:
					w.restart()
				case 1:
					w.recreate(step)
				case 2, 3:
					w.saveStates()
				case 4:
					if err := w.s.GC(); err != nil && !errors.Is(err, errAbort) {
						t.Fatal(err)
					}
				default:
					w.read()
				}
				if step%20 == 0 {
					mustVerify(t, w.s)
				}
			}
			w.s.failpoint = nil
			w.catchUp()
			w.check()
		})
	}
}

func (w *world) open() {
	s, err := Open(Options{Dir: w.dir})
	if err != nil {
		w.t.Fatal(err)
	}
	w.s = s
	s.failpoint = func(bool) error {
		if w.r.IntN(4) == 0 {
			return errAbort
		}
		return nil
	}
	w.t.Cleanup(func() { _ = s.Close() })
}

func (w *world) restart() {
	if err := w.s.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.open()
}

// publish puts n messages on the stream.
func (w *world) publish(n int) {
	for range n {
		seq := uint64(len(w.log) + 1)
		if w.r.IntN(20) == 0 {
			w.log = append(w.log, Entry{Seq: seq, Data: []byte("{")})
			continue
		}
		id := w.ids
		if w.ids == 0 || w.r.IntN(10) > 0 { // else a call is published once more
			w.ids++
		} else {
			id = w.r.Uint64N(w.ids)
		}
		w.must[id] = rich(id)
		w.log = append(w.log, entryOf(w.t, seq, rich(id)))
	}
}

// read applies a batch that begins anywhere up to the cursor and may end anywhere.
func (w *world) read() {
	from := w.next()
	if back := from - 1; back > 0 {
		from -= w.r.Uint64N(min(back, 40) + 1)
	}
	if rest := uint64(len(w.log)) + 1 - from; rest > 0 {
		w.apply(w.log[from-1 : from-1+w.r.Uint64N(rest+1)])
	}
}

// next is the sequence that a consumer would start from.
func (w *world) next() uint64 {
	c, err := w.s.Cursor()
	if err != nil {
		w.t.Fatal(err)
	}
	if c.Stream != w.stream {
		return 1
	}
	return c.Seq + 1
}

func (w *world) apply(batch []Entry) {
	got, err := w.s.Apply(w.stream, batch)
	if err != nil && !errors.Is(err, errAbort) {
		w.t.Fatal(err)
	}
	if n := got.Rows + got.Duplicates + got.Malformed; err == nil && n != len(batch) {
		w.t.Fatalf("%+v of %d entries", got, len(batch))
	}
}

// recreate makes another stream of the same messages: all that the database may
// not have, and some that it has, some of them gone.
func (w *world) recreate(step int) {
	next := w.next()
	w.stream = fmt.Sprint(step)
	old := w.log
	w.log = nil
	keep := w.r.Uint64N(next)
	for _, e := range old[keep:] {
		w.log = append(w.log, Entry{Seq: uint64(len(w.log) + 1), Data: e.Data})
	}
}

// saveStates stores some states, again and again until no error comes.
func (w *world) saveStates() {
	states := map[string][]byte{}
	for range 1 + w.r.IntN(4) {
		key := fmt.Sprint("k", w.r.IntN(6))
		if w.r.IntN(3) == 0 {
			states[key] = nil
			delete(w.states, key)
			continue
		}
		states[key] = fmt.Append(nil, w.r.Uint64())
		w.states[key] = string(states[key])
	}
	for err := errAbort; err != nil; {
		if err = w.s.SaveStates(states); err != nil && !errors.Is(err, errAbort) {
			w.t.Fatal(err)
		}
	}
}

func (w *world) catchUp() {
	w.apply(w.log[w.next()-1:])
	mustCursor(w.t, w.s, Cursor{w.stream, uint64(len(w.log))})
}

func (w *world) check() {
	w.t.Helper()
	mustVerify(w.t, w.s)
	var records []*subjects.UsageRecord
	for _, r := range w.must {
		records = append(records, r)
	}
	if rows := countPrefix(w.t, w.s, rowPrefix); rows != len(records) {
		w.t.Fatalf("%d rows of %d calls", rows, len(records))
	}
	checkSummary(w.t, w.s, records, subjects.UsageQuery{Hours: 24 * 30}, noon)
	checkSummary(w.t, w.s, records, subjects.UsageQuery{Hours: 170, BucketMinutes: 77}, noon)
	checkSpends(w.t, w.s, records)
	checkStates(w.t, w.s, w.states)
}
