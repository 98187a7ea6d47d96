package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// budgetPrices make a token of custom/even cost a micro-dollar.
const budgetPrices = `prices:
  custom/even: {input: 1, output: 1}
  custom/dear: {input: 3, output: 15, cache_read: 0.30, cache_write: 3.75}
  custom/gratis: {input: 0, output: 0}
`

// testBudgets is a configuration with a total of limit micro-dollars and nothing
// else bounded.
func testBudgets(t testing.TB, limit subjects.USD) *config.Config {
	return &config.Config{
		CostMode: config.CostStandard, Prices: *loadPrices(t, budgetPrices),
		Costs: config.Costs{
			PerRun:      map[string]subjects.USD{config.CostStandard: config.NoLimit},
			BatchTokens: config.NoLimit, BatchUSD: config.NoLimit, TotalUSD: limit, TotalPeriod: config.PeriodAll,
		},
	}
}

type spentFunc = func(ctx context.Context, scope, id string) (int64, subjects.USD, error)

// eventLog keeps the events of budgets as short texts.
type eventLog struct {
	mu   sync.Mutex
	said []string
}

func (l *eventLog) emit(_ string, ev any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := ev.(*subjects.BudgetEvent)
	l.said = append(l.said, fmt.Sprintf("%s %s %s %d%%", e.Scope, e.ID, e.Unit, e.Percent))
}

func (l *eventLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := l.said
	l.said = nil
	return said
}

func testLedger(t testing.TB, cfg *config.Config, spent spentFunc) (*ledger, *eventLog) {
	t.Helper()
	sys := newSystem(slog.New(slog.DiscardHandler))
	t.Cleanup(sys.close)
	if spent == nil {
		spent = func(context.Context, string, string) (int64, subjects.USD, error) { return 0, 0, nil }
	}
	events := &eventLog{}
	return newLedger(sys, cfg, ledgerOptions{emit: events.emit, spent: spent, log: sys.log}), events
}

// evenCall is a call to custom/even with an estimate and a bound.
func evenCall(input, bound int64) estimate {
	return estimate{provider: "custom", model: "even", account: subjects.SubscriptionAPIKey, inputTokens: input, maxTokens: bound}
}

// pay settles a reservation with what tokens of custom/even cost.
func pay(r *reserved, input, output int64) {
	cost := subjects.USD(input + output)
	r.settle(&cost, subjects.Usage{InputTokens: input, OutputTokens: output, TotalTokens: input + output}, true)
}

func mustReserve(t *testing.T, l *ledger, e estimate) *reserved {
	t.Helper()
	r, err := l.reserve(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustRefuse(t *testing.T, l *ledger, e estimate, says ...string) {
	t.Helper()
	r, err := l.reserve(context.Background(), e)
	if r != nil || subjects.KindOf(err) != subjects.KindBudgetExceeded {
		t.Fatalf("reserved %v, error %v; want BUDGET_EXCEEDED", r, err)
	}
	for _, want := range says {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// totalState is the total as it is shown.
func totalState(t *testing.T, l *ledger) subjects.BudgetState {
	t.Helper()
	for _, s := range l.state(context.Background()) {
		if s.Scope == subjects.BudgetTotal {
			return s
		}
	}
	t.Fatal("no total is shown")
	return subjects.BudgetState{}
}

// budgetGate is a way to keep a budget: the ledger, or a naive control.
type budgetGate func(ctx context.Context, e estimate) (settle func(input, output int64), err error)

func ledgerGate(l *ledger) budgetGate {
	return func(ctx context.Context, e estimate) (func(int64, int64), error) {
		r, err := l.reserve(ctx, e)
		return func(in, out int64) { pay(r, in, out) }, err
	}
}

var errOver = errors.New("over")

// naiveGate keeps a budget under one lock. reserves takes the estimate out of it
// before the call, else only what is spent is looked at; nobody waits.
func naiveGate(limit int64, reserves bool) budgetGate {
	var mu sync.Mutex
	var taken int64
	return func(_ context.Context, e estimate) (func(int64, int64), error) {
		mu.Lock()
		defer mu.Unlock()
		held := int64(0)
		if reserves {
			held = e.inputTokens + e.maxTokens
			if e.maxTokens == 0 {
				held += guessedOutput
			}
		}
		if taken+held > limit || taken >= limit {
			return nil, errOver
		}
		taken += held
		return func(in, out int64) {
			mu.Lock()
			defer mu.Unlock()
			taken += in + out - held
		}, nil
	}
}

// burst is 1,000 calls at once against a budget for 100 of them: what they are
// reckoned to use, and what they do use.
type burst struct {
	name          string
	input, output int64 // used
	asked, bound  int64 // estimated
	// unused is the estimate of one call once the model is known.
	unused int64
}

func bursts() []burst {
	return []burst{
		{"exact", 10, 50, 10, 50, 60},
		{"bound far too high", 10, 50, 10, 4096, 4106},
		{"longer prompt than estimated", 1000, 50, 1, 50, 1050},
		{"long prompt and no bound", 1000, 50, 1, 0, 1050},
		{"no bound and a short answer", 3, 2, 3, 0, 5},
		{"prompt twice as long", 200, 10, 100, 10, 210},
	}
}

// run lets the calls go against a gate. Some fail and spend nothing, some leave
// while they wait. It returns what all have spent.
func (u burst) run(t *testing.T, gate budgetGate, seed uint64) int64 {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	results := make(chan int64)
	for i := range 1000 {
		took := time.Duration(rng.IntN(1000)) * time.Millisecond
		patience, fails := time.Hour, i >= 100 && rng.IntN(8) == 0
		if rng.IntN(8) == 0 {
			patience = time.Duration(rng.IntN(3000)) * time.Millisecond
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			e := evenCall(u.asked, u.bound)
			settle, err := gate(ctx, e)
			if err != nil {
				results <- 0
				return
			}
			pass(took)
			if fails {
				settle(0, 0)
				results <- 0
				return
			}
			settle(u.input, u.output)
			results <- u.input + u.output
		}()
	}
	sum := int64(0)
	for range 1000 {
		sum += <-results
	}
	return sum
}

// kept says how a sum is within a budget; "" = as it should be.
func (u burst) kept(sum int64) string {
	limit := 100 * (u.input + u.output)
	switch {
	case sum > limit:
		return fmt.Sprintf("%d spent of %d", sum, limit)
	case limit-sum >= u.unused:
		return fmt.Sprintf("%d spent of %d: %d unused, one call's estimate is %d", sum, limit, limit-sum, u.unused)
	}
	return ""
}

// TestThousandCallsForAHundred is the promise: never over, and less than one
// call's estimate left unused.
func TestThousandCallsForAHundred(t *testing.T) {
	for _, u := range bursts() {
		for seed := range uint64(3) {
			t.Run(fmt.Sprint(u.name, " ", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					limit := 100 * (u.input + u.output)
					l, events := testLedger(t, testBudgets(t, subjects.USD(limit)), nil)
					sum := u.run(t, ledgerGate(l), seed)
					if wrong := u.kept(sum); wrong != "" {
						t.Error(wrong)
					}
					st := totalState(t, l)
					if st.Reserved != 0 || st.Waiting != 0 || st.Spent != float64(sum)/1e6 {
						t.Errorf("afterwards %+v, %d spent", st, sum)
					}
					if said := events.take(); u.bound <= 50 && !slices.Equal(said, allMarks) {
						t.Errorf("said %v", said)
					}
				})
			})
		}
	}
}

var allMarks = []string{"total all usd 50%", "total all usd 80%", "total all usd 90%", "total all usd 100%"}

// TestNaiveBudgetsFail is the control: a budget that is looked at and not
// reserved from is overrun; one that is reserved from, learns nothing and lets
// nobody wait is overrun by some and left unused by others.
func TestNaiveBudgetsFail(t *testing.T) {
	for name, reserves := range map[string]bool{"looks": false, "reserves": true} {
		for _, u := range bursts() {
			synctest.Test(t, func(t *testing.T) {
				wrong := u.kept(u.run(t, naiveGate(100*(u.input+u.output), reserves), 0))
				if wrong == "" && !(reserves && u.name == "exact") {
					t.Errorf("a gate that %s passed %q: the test does not bite", name, u.name)
				}
			})
		}
	}
}

// TestAnswersOfAllLengths: without a bound nobody knows how long an answer will
// be, and those that come back first are the short ones. The budget is overrun by
// some answers and not by many.
func TestAnswersOfAllLengths(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			const limit, longest = 50_000, 4000
			l, _ := testLedger(t, testBudgets(t, limit), nil)
			rng := rand.New(rand.NewPCG(seed, 3))
			spent := make(chan int64)
			for range 1000 {
				out := min(int64(math.Exp(rng.NormFloat64()*0.8+math.Log(400))), longest)
				go func() {
					r, err := l.reserve(context.Background(), evenCall(10, 0))
					if err != nil {
						spent <- 0
						return
					}
					pass(time.Duration(out) * 10 * time.Millisecond) // as many a second
					pay(r, 10, out)
					spent <- 10 + out
				}()
			}
			sum := int64(0)
			for range 1000 {
				sum += <-spent
			}
			if sum > limit*5/4 || sum < limit*3/4 {
				t.Errorf("seed %d: %d spent of %d", seed, sum, limit)
			}
		})
	}
}
