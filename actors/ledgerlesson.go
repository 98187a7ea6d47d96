package actors

import (
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

const (
	// guessedOutput is the length of an answer, in tokens, that is reckoned with
	// before anything is known of the model.
	guessedOutput = 2048
	// sampleCount is how many of the last calls of a model are looked back at.
	// Before enoughSamples an answer without a bound is reckoned to be no shorter than
	// the guess, while others run: those that come back first are the short ones.
	sampleCount   = 64
	enoughSamples = 32
	// firstShare is the part of the tightest limit (1/16) that a call reserves at
	// least while nothing is known of its model, and that a guess is at most.
	// It is no more than firstFactor times what a call would be taken to use: a large
	// limit lets more of them begin.
	firstShare  = 16
	firstFactor = 8
	// maxSlope bounds the tokens for each estimated one, which stands for four bytes:
	// tokenizers make at most one of each byte. What is above is an overhead that
	// every prompt has.
	maxSlope = 4
	// maxCount bounds a count of tokens in an estimate: no model takes as many.
	maxCount = 1 << 28
	// maxLessons bounds the models that are remembered.
	maxLessons = 1024
)

// modelKey has a canonical model.
type modelKey struct{ provider, model string }

// sample is what one call was reckoned to use and did use. All counts are within
// maxCount, prompt within three times that.
type sample struct {
	asked  int64 // estimated input, at least 1
	prompt int64 // fresh and cached input
	fresh  int64
	output int64
	// wrote says that the provider wrote to its prompt cache, which may cost more
	// than fresh input; broke, that the answer was longer than the caller's bound.
	wrote, broke bool
}

// lesson is what the last calls of a model have taught.
type lesson struct {
	samples [sampleCount]sample
	n       int // calls in all, of which the last sampleCount are kept
	used    time.Time
	// unpriced says that it was logged that a cost is not known.
	unpriced bool

	prompt, fresh envelope
	output        int64
	wrote, broke  bool
}

// envelope is a line y = ceil(num/den * x) + extra above all points seen, with a
// slope of 1 to maxSlope. The zero value is y = x.
type envelope struct{ num, den, extra int64 }

func (e envelope) at(x int64) int64 {
	if e.den == 0 {
		return x
	}
	return (x*e.num+e.den-1)/e.den + e.extra
}

// envelopeOf is the envelope of samples: its slope is the largest ratio among them,
// within bounds, and extra what that leaves uncovered. So prompts like those
// before get what those used, and a long one is not taken to have the overhead
// of a short one for each of its tokens.
func envelopeOf(samples []sample, y func(*sample) int64) envelope {
	e := envelope{num: 1, den: 1}
	for i := range samples {
		s := &samples[i]
		switch {
		case y(s) > maxSlope*s.asked:
			e.num, e.den = maxSlope, 1
		case y(s)*e.den > e.num*s.asked:
			e.num, e.den = y(s), s.asked
		}
	}
	for i := range samples {
		s := &samples[i]
		e.extra = max(e.extra, y(s)-envelope{e.num, e.den, 0}.at(s.asked))
	}
	return e
}

func (l *lesson) add(s sample) {
	l.samples[l.n%sampleCount] = s
	l.n++
	samples := l.samples[:min(l.n, sampleCount)]
	l.prompt = envelopeOf(samples, func(s *sample) int64 { return s.prompt })
	l.fresh = envelopeOf(samples, func(s *sample) int64 { return s.fresh })
	l.output, l.wrote, l.broke = 0, false, false
	for i := range samples {
		s := &samples[i]
		l.output = max(l.output, s.output)
		l.wrote, l.broke = l.wrote || s.wrote, l.broke || s.broke
	}
}

// learn takes a settled call as a sample. One that spent nothing teaches nothing,
// nor does one that was cut off before its tokens were counted: an estimate of the
// part that came says neither what prompts cost nor how long answers are.
func (b *book) learn(r *reserved, m *settlement, now time.Time) {
	u := &m.tokens
	if u.InputTokens|u.OutputTokens|u.CacheReadTokens|u.CacheWriteTokens == 0 {
		return
	}
	l := b.lesson(modelKey{r.provider, r.model}, now)
	if r.counted[inUSD] && !m.known && !l.unpriced {
		l.unpriced = true
		b.log.Warn("a call's cost is not known: budgets count it as 0 (prices has no price for the model, or none for cached tokens)",
			"provider", r.provider, "model", r.model)
	}
	if u.Estimated && !m.whole {
		return
	}
	s := sample{
		asked: max(1, tokenCount(r.inputTokens)), fresh: tokenCount(u.InputTokens), output: tokenCount(u.OutputTokens), wrote: u.CacheWriteTokens > 0,
		broke: r.maxTokens > 0 && u.OutputTokens > r.maxTokens,
	}
	s.prompt = s.fresh + tokenCount(u.CacheReadTokens) + tokenCount(u.CacheWriteTokens)
	l.add(s)
}

// tokenCount is a count of tokens within bounds.
func tokenCount(n int64) int64 { return min(max(n, 0), maxCount) }

// lesson returns what is known of a model, to be added to. When there are too
// many the one that was longest not used makes room.
func (b *book) lesson(k modelKey, now time.Time) *lesson {
	l := b.lessons[k]
	if l == nil {
		if len(b.lessons) >= maxLessons {
			var oldest modelKey
			for k, l := range b.lessons {
				if o := b.lessons[oldest]; o == nil || l.used.Before(o.used) {
					oldest = k
				}
			}
			delete(b.lessons, oldest)
		}
		l = &lesson{}
		b.lessons[k] = l
	}
	l.used = now
	return l
}

// want is how much of one unit a call needs. least is what it uses even if all
// goes well: without that it is refused at once. firm is the estimate: without
// that it is refused once nothing is reserved. careful is what is reserved for
// it while others run, and never below firm.
type want struct{ least, firm, careful int64 }

// wants estimates a call by what is known now. A model without any sample is
// reckoned with a sixteenth of the tightest limit, or with eight times what it
// would be taken to use, the lesser of the two, while others run: a first burst
// cannot overrun a limit by much before one has come back. The guess at an answer
// without a bound is no more than that sixteenth: a guess must not refuse what a
// budget may well have room for.
func (b *book) wants(r *reserved) (w [units]want) {
	l := b.lessons[modelKey{r.provider, r.model}]
	if l == nil {
		l = &lesson{}
	}
	price, known := b.cfg.Prices.Price(r.provider, r.model)
	asked, bound := tokenCount(r.inputTokens), tokenCount(r.maxTokens)
	for u := range units {
		tight := r.tightest(u)
		free := u == inUSD && (!known || price.Rates == config.Rates{} && price.Long == config.Rates{})
		if !r.counted[u] || tight == config.NoLimit || free {
			continue
		}
		weigh, in := func(in, out int64) int64 { return in + out }, l.fresh.at(asked)
		w[u].least = asked + bound
		if u == inUSD {
			weigh, in = func(in, out int64) int64 { return costAt(&price, in, out, l.wrote) }, l.prompt.at(asked)
			w[u].least = costAt(&price, asked, bound, false)
		}
		out := bound
		switch {
		case bound == 0:
			out = l.output
		case l.broke:
			out = max(bound, l.output)
		}
		w[u].firm = weigh(in, out)
		guess := min(weigh(0, guessedOutput), tight/firstShare)
		if bound == 0 && l.n == 0 {
			w[u].firm += guess
		}
		w[u].careful = w[u].firm
		switch {
		case l.n == 0:
			w[u].careful = max(w[u].firm, min(tight/firstShare, firstFactor*weigh(asked, max(bound, guessedOutput))))
		case bound == 0 && l.n < enoughSamples:
			w[u].careful = max(w[u].firm, min(weigh(in, guessedOutput), tight/firstShare))
		}
	}
	return w
}

// tightest is the smallest limit of what bounds a reservation.
func (r *reserved) tightest(u unit) int64 {
	tight := int64(config.NoLimit)
	for _, s := range r.scopes {
		if s == nil {
			continue
		}
		if limit := s.tallies[u].limit; limit != config.NoLimit && (tight == config.NoLimit || limit < tight) {
			tight = limit
		}
	}
	return tight
}

// costAt is what tokens cost at most: as fresh input, or as input that is
// written to the provider's cache where it does that. A cost that is not known
// is 0, as it will be counted.
func costAt(p *config.Price, in, out int64, wrote bool) int64 {
	var most subjects.USD
	if c := amount(p, true, &subjects.Usage{InputTokens: in, OutputTokens: out}); c != nil {
		most = *c
	}
	if wrote {
		if c := amount(p, true, &subjects.Usage{CacheWriteTokens: in, OutputTokens: out}); c != nil {
			most = max(most, *c)
		}
	}
	return int64(most)
}
