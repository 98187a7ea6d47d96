package actors

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// TestEnvelope: it is above every sample, exact for equal ones, and a long
// prompt is never reckoned with more than maxSlope times its length beside the
// overhead that was seen.
func TestEnvelope(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 5000 {
		samples := make([]sample, 1+rng.IntN(sampleCount))
		slope, overhead, most := rng.Float64()*6, rng.Int64N(30_000), int64(0)
		for i := range samples {
			asked := 1 + rng.Int64N(1<<uint(rng.IntN(28)))
			samples[i] = sample{asked: asked, prompt: int64(rng.Float64()*slope*float64(asked)) + rng.Int64N(overhead+1)}
			most = max(most, samples[i].prompt)
		}
		e := envelopeOf(samples, func(s *sample) int64 { return s.prompt })
		for _, s := range samples {
			if at := e.at(s.asked); at < s.prompt || at < s.asked {
				t.Fatalf("%+v is %d at %d, %d were used", e, at, s.asked, s.prompt)
			}
		}
		if at := e.at(maxCount); at > maxSlope*maxCount+most {
			t.Fatalf("%+v is %d at %d", e, at, maxCount)
		}
		one := samples[0]
		if at := envelopeOf(samples[:1], func(s *sample) int64 { return s.prompt }).at(one.asked); at != max(one.prompt, one.asked) {
			t.Fatalf("%d for a call like the one that used %d", at, one.prompt)
		}
	}
	if at := (envelope{}).at(7); at != 7 {
		t.Error(at)
	}
}

// TestEstimates: what a call is reckoned to use after calls that used something
// else. The limit is 1,600,000 micro-dollars, a token of custom/even costs one.
func TestEstimates(t *testing.T) {
	type used struct{ in, read, write, out int64 }
	many := func(n int, u used) (out []used) {
		for range n {
			out = append(out, u)
		}
		return out
	}
	const share, first = 100_000, firstFactor * (10 + guessedOutput)
	for name, c := range map[string]struct {
		model               string
		seen                []used // with an estimated input of 10 and the bound of the call
		asked, bound        int64
		least, firm, caring int64
	}{
		"nothing known":                     {"even", nil, 10, 500, 510, 510, first},
		"nothing known, no bound":           {"even", nil, 10, 0, 10, 10 + guessedOutput, first},
		"nothing known, a large call":       {"even", nil, 10, 200_000, 200_010, 200_010, 200_010},
		"nothing known, dear":               {"dear", nil, 10, 0, 30, 30 + 15*guessedOutput, share},
		"the guess is bounded":              {"dear", nil, 10, 10_000, 150_030, 150_030, 150_030},
		"one seen":                          {"even", many(1, used{10, 0, 0, 5}), 10, 500, 510, 510, 510},
		"one seen, no bound":                {"even", many(1, used{10, 0, 0, 5}), 10, 0, 10, 15, 10 + guessedOutput},
		"enough seen, no bound":             {"even", many(enoughSamples, used{10, 0, 0, 5}), 10, 0, 10, 15, 15},
		"overhead":                          {"even", many(1, used{1010, 0, 0, 5}), 10, 5, 15, 1015, 1015},
		"overhead is not for each token":    {"even", many(1, used{1010, 0, 0, 5}), 1000, 5, 1005, 4*1000 + 970 + 5, 4*1000 + 970 + 5},
		"longer in tokens":                  {"even", many(1, used{15, 0, 0, 5}), 101, 5, 106, 152 + 5, 152 + 5},
		"shorter in tokens":                 {"even", many(1, used{2, 0, 0, 5}), 100, 5, 105, 105, 105},
		"cached tokens are input":           {"dear", many(1, used{10, 20, 0, 5}), 10, 10, 180, 3*30 + 150, 3*30 + 150},
		"cache writes cost more":            {"dear", many(1, used{10, 0, 20, 5}), 10, 10, 180, 113 + 150, 113 + 150},
		"an answer longer than its bound":   {"even", many(1, used{10, 0, 0, 900}), 10, 500, 510, 910, 910},
		"only the last are looked back at":  {"even", append(many(1, used{10, 0, 0, 900}), many(sampleCount, used{10, 0, 0, 7})...), 10, 0, 10, 17, 17},
		"one that spent nothing is no call": {"even", many(3, used{}), 10, 500, 510, 510, first},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(testBudgets(t, 16*share), ledgerOptions{emit: func(string, any) {}})
			r := &reserved{estimate: evenCall(10, c.bound), counted: everyUnit}
			r.model = c.model
			r.scopes = b.scopesOf(r.bill, r.counted, time.Now())
			for _, u := range c.seen {
				b.learn(r, &settlement{known: true, tokens: subjects.Usage{
					InputTokens: u.in, CacheReadTokens: u.read, CacheWriteTokens: u.write, OutputTokens: u.out,
				}}, time.Now())
			}
			r.inputTokens = c.asked
			if w := b.wants(r)[inUSD]; w != (want{c.least, c.firm, c.caring}) {
				t.Errorf("%+v, want %d, %d, %d", w, c.least, c.firm, c.caring)
			}
		})
	}
}

// TestWhatWasCutOffTeachesNothing: a stream that broke off before its tokens were
// counted says nothing of the model: the calls after it must not be let in as if
// prompts cost no more than they seem to.
func TestWhatWasCutOffTeachesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		estimated, whole bool
		samples          int
	}{
		"counted and whole":                 {false, true, 1},
		"estimated and whole":               {true, true, 1},
		"counted, of no use to the caller":  {false, false, 1},
		"estimated from the part that came": {true, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := testLedger(t, testBudgets(t, 100_000), nil)
			cost := subjects.USD(15)
			mustReserve(t, l, evenCall(10, 100)).settle(&cost, subjects.Usage{InputTokens: 10, OutputTokens: 5, TotalTokens: 15, Estimated: c.estimated}, c.whole)
			first := mustReserve(t, l, evenCall(10, 100))
			defer first.settle(nil, subjects.Usage{}, false)
			want := 110.0 / 1e6
			if c.samples == 0 {
				want = 100_000.0 / firstShare / 1e6
			}
			if got := l.state(t.Context())[0].Reserved; got != want {
				t.Errorf("%v reserved, want %v", got, want)
			}
		})
	}
}

// TestLessonsAreBounded: a model that nobody uses any more makes room.
func TestLessonsAreBounded(t *testing.T) {
	b := newBook(testBudgets(t, 100), ledgerOptions{})
	start := time.Now()
	for i := range 3 * maxLessons / 2 {
		b.lesson(modelKey{"custom", "kept"}, start.Add(time.Duration(i)))
		b.lesson(modelKey{"custom", fmt.Sprint(i)}, start.Add(time.Duration(i)))
	}
	if len(b.lessons) != maxLessons || b.lessons[modelKey{"custom", "kept"}] == nil {
		t.Errorf("%d models are remembered", len(b.lessons))
	}
}
