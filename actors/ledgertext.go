package actors

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// over says which budgets of a bill are used up. It is part of the book.
func (b *book) over(of bill, now time.Time) (out usedUp) {
	for _, s := range b.scopesOf(of, everyUnit, now) {
		if s == nil {
			continue
		}
		if !s.ready(now) {
			return usedUp{err: errNotReady}
		}
		if out.freeOnly == "" && s.tallies[inUSD].usedUp() {
			out.freeOnly = b.usedUpText(s, inUSD)
		}
		if out.localOnly == "" && s.tallies[inTokens].usedUp() {
			out.localOnly = b.usedUpText(s, inTokens)
		}
	}
	return out
}

// refusal makes the error for a reservation that has no room even if nobody else
// had reserved anything. Where that shows that the budget is as good as used up
// it is remembered (for a call within the smallCall-th part of the limit) and
// said (within half of it). A larger call says nothing about the budget.
func (b *book) refusal(r *reserved, s *scope, u unit, needs int64) error {
	m := &s.tallies[u]
	if needs <= m.limit/smallCall {
		m.exhausted = true
	}
	if m.said < 100 && m.limit > 0 && needs <= m.limit/2 {
		b.say(s, u, 100, time.Now())
	}
	if m.spent >= m.limit {
		return subjects.Errorf(subjects.KindBudgetExceeded, "%s", b.usedUpText(s, u))
	}
	return subjects.Errorf(subjects.KindBudgetExceeded, "%s has %s left of %s (%s), and this call may use %s: %s, %s",
		s.title(), textOf(u, m.limit-m.spent), textOf(u, m.limit), s.keyOf(u, b.cfg), textOf(u, needs), smaller(r), b.remedy(s))
}

func smaller(r *reserved) string {
	if r.maxTokens > 0 {
		return "lower its token limit (maxTokens), now " + strconv.FormatInt(r.maxTokens, 10)
	}
	return "give it a token limit (maxTokens)"
}

func (b *book) usedUpText(s *scope, u unit) string {
	m := &s.tallies[u]
	if m.spent < m.limit {
		return fmt.Sprintf("%s is used up: of %s (%s) only %s is left, less than a small call may use; %s",
			s.title(), textOf(u, m.limit), s.keyOf(u, b.cfg), textOf(u, m.limit-m.spent), b.remedy(s))
	}
	return fmt.Sprintf("%s is used up: %s spent of %s (%s); %s", s.title(), textOf(u, m.spent), textOf(u, m.limit), s.keyOf(u, b.cfg), b.remedy(s))
}

func (s *scope) title() string {
	if s.key.kind == subjects.BudgetTotal {
		if s.key.id == "all" {
			return "the total budget"
		}
		return "the total budget of " + s.key.id
	}
	return fmt.Sprintf("the budget of %s %q", s.key.kind, clipName(s.key.id))
}

// keyOf is where the configuration has the limit.
func (s *scope) keyOf(u unit, cfg *config.Config) string {
	switch {
	case s.key.kind == subjects.BudgetRun:
		return "cost_limits." + cfg.CostMode + "_mode"
	case s.key.kind == subjects.BudgetTotal:
		return "batch_cost_limits.total_budget_usd"
	case u == inTokens:
		return "batch_cost_limits.max_tokens_per_batch"
	}
	return "batch_cost_limits.max_cost_per_batch_usd"
}

func (b *book) remedy(s *scope) string {
	switch {
	case s.key.kind != subjects.BudgetTotal:
		return "raise that limit, or begin another " + s.key.kind
	case b.periodEnd.IsZero():
		return "raise that limit"
	}
	return "raise that limit, or wait until it begins anew on " + b.periodEnd.Format(time.DateOnly) + ", 00:00 UTC"
}

func textOf(u unit, n int64) string {
	if u == inUSD {
		return "$" + subjects.USD(n).String()
	}
	return strconv.FormatInt(n, 10) + " tokens"
}
