package actors

import (
	"math"
	"math/bits"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// costOf says what a call cost on its account; nil when that is not known, which
// is never 0: no price for the model, a kind of token without a rate, a sum
// beyond the type. On an account that is not billed by token the cost is 0,
// whatever the model; so is that of a call without tokens on any account: a
// request that was refused. model is canonical.
func costOf(p *config.Prices, account, provider, model string, u *subjects.Usage) *subjects.USD {
	if account != subjects.SubscriptionAPIKey {
		return new(subjects.USD)
	}
	price, known := p.Price(provider, model)
	return amount(&price, known, u)
}

// savedOf says what a subscription saved by a call: what the same tokens cost on
// the metered twin. That is Anthropic's API for Claude Code, and for Copilot,
// which serves the models of several makers, the first vendor who sells the
// model. A price that is noted for the subscription itself counts before both.
// It is nil when the price is not known, and on every account that has no twin.
func savedOf(p *config.Prices, account, provider, model string, u *subjects.Usage) *subjects.USD {
	var price config.Price
	var known bool
	switch account {
	case subjects.SubscriptionMax:
		price, known = p.First(model, provider, "anthropic")
	case subjects.SubscriptionCopilot:
		price, known = p.First(model, provider, "anthropic", "openai", "gemini", "groq", "github-models")
	default:
		return nil
	}
	return amount(&price, known, u)
}

// amount is what the tokens cost at a price, rounded once, half up, to a
// micro-dollar; nil = not known.
func amount(price *config.Price, known bool, u *subjects.Usage) *subjects.USD {
	if u.InputTokens|u.OutputTokens|u.CacheReadTokens|u.CacheWriteTokens == 0 {
		return new(subjects.USD)
	}
	if !known {
		return nil
	}
	r := price.For(plus(u.InputTokens, plus(u.CacheReadTokens, u.CacheWriteTokens)))
	var sum wide
	if !sum.add(u.InputTokens, r.Input) || !sum.add(u.OutputTokens, r.Output) ||
		!sum.add(u.CacheReadTokens, r.CacheRead) || !sum.add(u.CacheWriteTokens, r.CacheWrite) {
		return nil
	}
	usd, fits := sum.millionths()
	if !fits {
		return nil
	}
	return &usd
}

// plus stops at the largest int64.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// wide is an unsigned sum of 128 bits: of tokens times micro-dollars a million.
// Four products of 63 bits each cannot pass it.
type wide struct{ hi, lo uint64 }

// add adds n tokens at a rate; false when that is not known.
func (w *wide) add(n int64, rate config.Rate) bool {
	switch {
	case n == 0:
		return true
	case n < 0 || rate < 0:
		return false
	}
	hi, lo := bits.Mul64(uint64(n), uint64(rate))
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.hi, _ = bits.Add64(w.hi, hi, carry)
	return true
}

// millionths divides by the million of the rate, half up.
func (w wide) millionths() (subjects.USD, bool) {
	const million = 1_000_000
	lo, carry := bits.Add64(w.lo, million/2, 0)
	hi := w.hi + carry
	if hi >= million { // the quotient has more than 64 bits
		return 0, false
	}
	q, _ := bits.Div64(hi, lo, million)
	return subjects.USD(q), q <= math.MaxInt64
}
