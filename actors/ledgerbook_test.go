package actors

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

var ledgerSteps = flag.Int("ledger.steps", 1500, "steps of the randomised ledger test")

// reserveAside reserves in a goroutine; the error comes when that is decided.
func reserveAside(ctx context.Context, l *ledger, e estimate) (<-chan *reserved, <-chan error) {
	got, failed := make(chan *reserved, 1), make(chan error, 1)
	go func() {
		r, err := l.reserve(ctx, e)
		if err != nil {
			failed <- err
			return
		}
		got <- r
	}()
	synctest.Wait()
	return got, failed
}

// teach makes a model known by a call that uses what it was estimated to use.
func teach(t *testing.T, l *ledger) {
	t.Helper()
	pay(mustReserve(t, l, evenCall(1, 1)), 1, 1)
}

// TestWaitsAndRefuses: what others have reserved is waited for, what is spent is
// not.
func TestWaitsAndRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := testLedger(t, testBudgets(t, 102), nil)
		teach(t, l)
		first := mustReserve(t, l, evenCall(30, 30))
		got, failed := reserveAside(context.Background(), l, evenCall(30, 30))
		if len(got)+len(failed) != 0 {
			t.Fatal("60 and 60 of 100 and nobody waits")
		}
		if st := totalState(t, l); st.Waiting != 1 || st.Reserved != 60e-6 || st.Spent != 2e-6 || st.Limit != 102e-6 || !st.Known {
			t.Errorf("state %+v", st)
		}
		pay(first, 10, 10)
		second := <-got
		// 20 + 2 are spent. 90 more can never be had, whoever settles what.
		mustRefuse(t, l, evenCall(30, 60), "the total budget has $0.00008 left of $0.000102 (batch_cost_limits.total_budget_usd)", "may use $0.00009", "maxTokens")
		pay(second, 30, 30)
		pay(second, 30, 30) // again: no effect
		if st := totalState(t, l); st.Reserved != 0 || st.Spent != 82e-6 {
			t.Errorf("state %+v", st)
		}
		mustRefuse(t, l, evenCall(20, 1))
		third := mustReserve(t, l, evenCall(10, 10))
		third.settle(nil, subjects.Usage{}, false) // failed: spent nothing
		pay(mustReserve(t, l, evenCall(10, 10)), 10, 10)
		mustRefuse(t, l, evenCall(1, 1), "the total budget is used up: $0.000102 spent of $0.000102", "raise that limit")
		(*reserved)(nil).settle(nil, subjects.Usage{}, false)
	})
}

// TestNothingIsCounted: where no budget is, or nothing counts, there is nothing
// to reserve, whatever is used up.
func TestNothingIsCounted(t *testing.T) {
	cfg := testBudgets(t, 0)
	cfg.Costs.BatchTokens = 10
	l, _ := testLedger(t, cfg, nil)
	account := func(account, batch string, local bool) estimate {
		return estimate{bill: bill{batchID: batch}, provider: "custom", model: "even", account: account, local: local, inputTokens: 100}
	}
	for name, c := range map[string]struct {
		e       estimate
		refused bool
	}{
		"subscription":            {account(subjects.SubscriptionMax, "", false), false},
		"subscription in a batch": {account(subjects.SubscriptionMax, "b", false), true},
		"local in a batch":        {account(subjects.SubscriptionLocal, "b", true), false},
		"mock in a batch":         {account(subjects.SubscriptionMock, "b", true), false},
		"metered":                 {account(subjects.SubscriptionAPIKey, "", false), true},
	} {
		r, err := l.reserve(context.Background(), c.e)
		if r != nil || (subjects.KindOf(err) == subjects.KindBudgetExceeded) != c.refused {
			t.Errorf("%s: reserved %v, error %v", name, r, err)
		}
	}
	l, _ = testLedger(t, testBudgets(t, config.NoLimit), func(context.Context, string, string) (int64, subjects.USD, error) {
		t.Error("what was spent is asked for though nothing is bounded")
		return 0, 0, nil
	})
	b := bill{"run", "batch"}
	if free, local, err := l.over(context.Background(), b); free+local != "" || err != nil {
		t.Error(free, local, err)
	}
	e := evenCall(1, 1)
	e.bill = b
	if r := mustReserve(t, l, e); r != nil {
		t.Error("reserved though nothing is bounded")
	}
	if st := l.state(context.Background()); len(st) != 0 {
		t.Errorf("state %+v", st)
	}
}

// TestUnknownPrice: a cost that is not known is counted as 0, while there is
// something left of the budget.
func TestUnknownPrice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := testLedger(t, testBudgets(t, 50), nil)
		e := evenCall(1_000_000, 1_000_000)
		e.model = "nobody-noted-it"
		for range 3 {
			r := mustReserve(t, l, e)
			defer r.settle(nil, subjects.Usage{}, false)
			mustReserve(t, l, e).settle(nil, subjects.Usage{InputTokens: 7, OutputTokens: 7}, true)
		}
		e.model = "gratis"
		pay(mustReserve(t, l, e), 0, 0)
		teach(t, l)
		pay(mustReserve(t, l, evenCall(24, 24)), 24, 24)
		mustRefuse(t, l, e, "used up")
		e.model = "nobody-noted-it"
		mustRefuse(t, l, e, "used up")
	})
}

// TestLineIsFair: a large call is not overtaken by small ones that would fit
// beside what is reserved, and does not stand in the way of other budgets.
func TestLineIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testBudgets(t, config.NoLimit)
		cfg.Costs.PerRun[config.CostStandard] = 100
		l, _ := testLedger(t, cfg, nil)
		in := func(run string, n int64) estimate {
			e := evenCall(n, 1)
			e.runID = run
			return e
		}
		pay(mustReserve(t, l, in("c", 1)), 1, 1)
		held := mustReserve(t, l, in("a", 49))
		big, _ := reserveAside(context.Background(), l, in("a", 59))
		ctx, cancel := context.WithCancel(context.Background())
		left, gone := reserveAside(ctx, l, in("a", 9))
		small, _ := reserveAside(context.Background(), l, in("a", 9))
		if len(big)+len(left)+len(small) != 0 {
			t.Fatal("a small call overtook the large one before it")
		}
		pay(mustReserve(t, l, in("b", 89)), 89, 1) // another run
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Fatalf("a cancelled call got %v", err)
		}
		pay(held, 4, 1)
		synctest.Wait()
		pay(<-big, 59, 1)
		pay(<-small, 9, 1)
		mustRefuse(t, l, in("a", 29), `the budget of run "a" has $0.000025 left of $0.0001 (cost_limits.standard_mode)`, "begin another run")
	})
}

// TestFirstOfLineLeaves: those behind one who leaves go on at once.
func TestFirstOfLineLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := testLedger(t, testBudgets(t, 102), nil)
		teach(t, l)
		held := mustReserve(t, l, evenCall(49, 1))
		ctx, cancel := context.WithCancelCause(context.Background())
		_, gone := reserveAside(ctx, l, evenCall(59, 1))
		small, _ := reserveAside(context.Background(), l, evenCall(9, 1))
		cancel(errGone)
		if err := <-gone; !errors.Is(err, errGone) {
			t.Errorf("got %v", err)
		}
		pay(<-small, 9, 1)
		pay(held, 49, 1)
		if st := totalState(t, l); st.Spent != 62e-6 || st.Reserved != 0 {
			t.Errorf("state %+v", st)
		}
	})
}

// TestAlone: beside nothing that is reserved a call gets what is left, down to
// its estimate, and not below.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sums := &fakeSums{cost: map[string]subjects.USD{"total all": 1550}}
		l, _ := testLedger(t, testBudgets(t, 1600), sums.spent)
		first := mustReserve(t, l, evenCall(1, 9)) // unknown: a sixteenth is more than is left
		if st := totalState(t, l); st.Reserved != 50e-6 {
			t.Errorf("state %+v", st)
		}
		second, _ := reserveAside(context.Background(), l, evenCall(1, 9))
		if len(second) != 0 {
			t.Fatal("granted although all is reserved")
		}
		pay(first, 21, 9) // 20 more than estimated
		synctest.Wait()
		if len(second) != 0 {
			t.Fatal("granted 30 of 20")
		}
		mustRefuse(t, l, evenCall(1, 9), "$0.00002 left", "may use $0.00003")
	})
}

// TestBoundLater: a budget that was not bounded and is now counts what was spent
// meanwhile.
func TestBoundLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sums := &fakeSums{cost: map[string]subjects.USD{}}
		l, _ := testLedger(t, testBudgets(t, 100), sums.spent)
		teach(t, l)
		l.reconfigure(testBudgets(t, config.NoLimit))
		sums.cost["total all"] = 100
		l.reconfigure(testBudgets(t, 100))
		mustOver(t, l, bill{}, "used up", "")
	})
}

// TestReconfigured: a higher limit lets those in line go, a lower one refuses
// them.
func TestReconfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, events := testLedger(t, testBudgets(t, 100), nil)
		teach(t, l)
		held := mustReserve(t, l, evenCall(79, 1))
		one, _ := reserveAside(context.Background(), l, evenCall(49, 1))
		l.reconfigure(testBudgets(t, 200))
		synctest.Wait()
		first := <-one
		two, refused := reserveAside(context.Background(), l, evenCall(79, 1))
		l.reconfigure(testBudgets(t, 70))
		synctest.Wait()
		if err := <-refused; subjects.KindOf(err) != subjects.KindBudgetExceeded || len(two) != 0 {
			t.Errorf("got %v", err)
		}
		pay(held, 36, 1)
		pay(first, 0, 0)
		if said := events.take(); !slices.Equal(said, allMarks[:1]) { // 39 of 70
			t.Errorf("said %v", said)
		}
		l.reconfigure(testBudgets(t, 40))
		l.reconfigure(testBudgets(t, 45))
		if said := events.take(); !slices.Equal(said, allMarks[1:3]) { // of 40; of 45 it is 86 %
			t.Errorf("said %v", said)
		}
		pay(mustReserve(t, l, evenCall(1, 1)), 1, 1)
		if said := events.take(); !slices.Equal(said, allMarks[2:3]) { // 41 of 45
			t.Errorf("said %v", said)
		}
		l.reconfigure(testBudgets(t, config.NoLimit))
		if r := mustReserve(t, l, evenCall(1e6, 1)); r != nil {
			t.Error("reserved without a limit")
		}
	})
}

// ledgerHammer drives a ledger at random, with its own books beside.
type ledgerHammer struct {
	t   *testing.T
	l   *ledger
	cfg *config.Config
	rng *rand.Rand

	mu       sync.Mutex // guards what follows
	calls    []*ledgerCall
	granted  []*ledgerCall // since the last check, in any order
	arrivals int
	ended    int
	spent    map[string]int64 // by scope and unit, in micro-dollars and tokens
}

type ledgerCall struct {
	estimate
	seq    int
	state  int32
	cancel context.CancelFunc
	settle chan bool // false: it spent nothing
}

// names are the tallies that a call counts in.
func (c *ledgerCall) names(cfg *config.Config) []string {
	var out []string
	counts := c.counts()
	if counts[inUSD] {
		out = append(out, "total all usd")
		if c.runID != "" {
			out = append(out, "run "+c.runID+" usd")
		}
		if c.batchID != "" {
			out = append(out, "batch "+c.batchID+" usd")
		}
	}
	if counts[inTokens] && c.batchID != "" {
		out = append(out, "batch "+c.batchID+" tokens")
	}
	return out
}

func (h *ledgerHammer) arrive() {
	pick := func(of ...string) string { return of[h.rng.IntN(len(of))] }
	c := &ledgerCall{settle: make(chan bool, 2), seq: h.arrivals}
	c.estimate = estimate{
		bill: bill{pick("", "r1", "r2", "r3"), pick("", "", "b1", "b2")}, provider: "custom", model: "even",
		account:     pick(subjects.SubscriptionAPIKey, subjects.SubscriptionAPIKey, subjects.SubscriptionMax, subjects.SubscriptionMock),
		inputTokens: 1 + h.rng.Int64N(50), maxTokens: 1 + h.rng.Int64N(200),
	}
	c.local = c.account == subjects.SubscriptionMock
	h.arrivals++
	ctx, cancel := context.WithCancel(context.Background())
	if h.rng.IntN(3) == 0 {
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(h.rng.IntN(3000))*time.Millisecond)
	}
	c.cancel = cancel
	h.calls = append(h.calls, c)
	in, out := h.rng.Int64N(c.inputTokens)+1, h.rng.Int64N(c.maxTokens+1)
	go h.run(ctx, c, in, out)
}

func (h *ledgerHammer) run(ctx context.Context, c *ledgerCall, in, out int64) {
	defer c.cancel()
	r, err := h.l.reserve(ctx, c.estimate)
	h.note(c, func() {
		c.state = callOver
		if err == nil {
			c.state = callActive
			h.granted = append(h.granted, c)
		}
	})
	if err != nil {
		return
	}
	if !<-c.settle {
		in, out = 0, 0
	}
	cost := subjects.USD(in + out)
	r.settle(&cost, subjects.Usage{InputTokens: in, OutputTokens: out}, true)
	r.settle(&cost, subjects.Usage{InputTokens: in, OutputTokens: out}, true)
	h.note(c, func() {
		c.state = callOver
		for _, name := range c.names(h.cfg) {
			h.spent[name] += in + out
		}
	})
}

func (h *ledgerHammer) note(_ *ledgerCall, f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *ledgerHammer) step() {
	switch n := h.rng.IntN(10); {
	case n < 5:
		h.arrive()
	case n < 6:
		if c := h.pick(callWaiting); c != nil {
			c.cancel()
		}
	case n < 9:
		if c := h.pick(callActive); c != nil {
			c.settle <- h.rng.IntN(5) > 0
		}
	default:
		pass(time.Duration(h.rng.IntN(500)) * time.Millisecond)
	}
}

func (h *ledgerHammer) pick(state int32) *ledgerCall {
	var of []*ledgerCall
	for _, c := range h.calls {
		if c.state == state {
			of = append(of, c)
		}
	}
	if len(of) == 0 {
		return nil
	}
	return of[h.rng.IntN(len(of))]
}

// check compares the ledger with the books while nothing moves.
func (h *ledgerHammer) check(step int) {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	active, waiting := map[string]int{}, map[string]int{}
	h.calls = slices.DeleteFunc(h.calls, func(c *ledgerCall) bool {
		for _, name := range c.names(h.cfg) {
			switch c.state {
			case callActive:
				active[name]++
			case callWaiting:
				waiting[name]++
			}
		}
		if c.state == callOver {
			h.ended++
		}
		return c.state == callOver
	})
	for _, st := range h.l.state(context.Background()) {
		name := st.Scope + " " + st.ID + " " + st.Unit
		spent := int64(st.Spent*1e6 + 0.5)
		if st.Unit == "tokens" {
			spent = int64(st.Spent)
		}
		switch {
		case spent != h.spent[name]:
			h.t.Fatalf("step %d: %s says %d spent, it was %d", step, name, spent, h.spent[name])
		case st.Spent+st.Reserved > st.Limit*1.0000001:
			h.t.Fatalf("step %d: overcommitted: %+v", step, st)
		case (st.Reserved > 0) != (active[name] > 0):
			h.t.Fatalf("step %d: %d calls hold something of %+v", step, active[name], st)
		case st.Waiting != waiting[name]:
			h.t.Fatalf("step %d: %d calls wait for %+v", step, waiting[name], st)
		}
	}
	h.checkOrder(step, active)
}

// checkOrder: nobody was overtaken by a later call of the same budgets, and who
// waits waits for something.
func (h *ledgerHammer) checkOrder(step int, active map[string]int) {
	for _, w := range h.calls {
		if w.state != callWaiting {
			continue
		}
		names := w.names(h.cfg)
		if !slices.ContainsFunc(names, func(name string) bool { return active[name] > 0 }) {
			h.t.Fatalf("step %d: a call waits for %v, of which nothing is reserved", step, names)
		}
		for _, g := range h.granted {
			if g.seq > w.seq && g.bill == w.bill && g.account == w.account {
				h.t.Fatalf("step %d: call %d overtook call %d in %v", step, g.seq, w.seq, names)
			}
		}
	}
	h.granted = h.granted[:0]
}

func TestLedgerRandomised(t *testing.T) {
	for seed := range 6 {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := testBudgets(t, 60_000)
				cfg.Costs.PerRun[config.CostStandard] = 15_000
				cfg.Costs.BatchUSD, cfg.Costs.BatchTokens = 12_000, 20_000
				if seed%2 == 1 { // tight from the start
					cfg.Costs.TotalUSD, cfg.Costs.PerRun[config.CostStandard] = 9000, 900
				}
				l, _ := testLedger(t, cfg, nil)
				h := &ledgerHammer{t: t, l: l, cfg: cfg, rng: rand.New(rand.NewPCG(uint64(seed), 9)), spent: map[string]int64{}}
				for i := range *ledgerSteps {
					h.step()
					h.check(i)
				}
				for len(h.calls) > 0 { // let all end: whoever waits must come to run, or be refused
					for _, c := range h.calls {
						if c.state == callActive {
							c.settle <- true
						}
					}
					before := h.ended
					h.check(-1)
					if h.ended == before {
						t.Fatalf("%d calls wait and none goes on", len(h.calls))
					}
				}
				h.check(-2)
				pass(keptIdle + time.Second)
				totalState(t, l)
				if st := l.state(context.Background()); len(st) != 1 {
					t.Errorf("after %v all is kept: %+v", keptIdle, st)
				}
			})
		})
	}
}

func BenchmarkLedger(b *testing.B) {
	cfg := testBudgets(b, 1<<50)
	cfg.Costs.PerRun[config.CostStandard] = 1 << 50
	cfg.Costs.BatchUSD, cfg.Costs.BatchTokens = 1<<50, 1<<50
	for _, of := range []bill{{}, {"run", "batch"}} {
		name := "total"
		if of.runID != "" {
			name = "run, batch and total"
		}
		b.Run(name, func(b *testing.B) {
			l, _ := testLedger(b, cfg, nil)
			ctx, e := context.Background(), evenCall(100, 100)
			e.bill = of
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := l.over(ctx, of); err != nil {
					b.Fatal(err)
				}
				r, err := l.reserve(ctx, e)
				if err != nil {
					b.Fatal(err)
				}
				pay(r, 100, 100)
			}
		})
	}
}

// BenchmarkLedgerLine settles while 10,000 calls wait, of 100 runs each of which
// has no room for them.
func BenchmarkLedgerLine(b *testing.B) {
	cfg := testBudgets(b, 1<<50)
	cfg.Costs.PerRun[config.CostStandard] = 100
	l, _ := testLedger(b, cfg, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	for i := range 100 {
		e := evenCall(98, 1)
		e.runID = fmt.Sprint("run", i)
		if _, err := l.reserve(ctx, e); err != nil {
			b.Fatal(err)
		}
		for range 100 {
			calls.Go(func() { _, _ = l.reserve(ctx, e) })
		}
	}
	for st := l.state(ctx); st[0].Waiting < 10_000; st = l.state(ctx) {
		pass(time.Millisecond)
	}
	e := evenCall(1, 1)
	e.runID = "free"
	b.ReportAllocs()
	for b.Loop() {
		r, err := l.reserve(ctx, e)
		if err != nil {
			b.Fatal(err)
		}
		pay(r, 0, 0)
	}
	b.StopTimer()
	cancel()
	calls.Wait()
}

// TestPeopleFirst: an interactive call does not wait behind a batch for a budget,
// only behind other interactive ones.
func TestPeopleFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := testLedger(t, testBudgets(t, 102), nil)
		teach(t, l)
		class := func(name string, n int64) estimate {
			e := evenCall(n, n)
			e.class = name
			return e
		}
		first := mustReserve(t, l, class(subjects.ClassIngestion, 40))
		var got []<-chan *reserved
		for _, c := range []estimate{
			class(subjects.ClassIngestion, 20), class(subjects.ClassIngestion, 20), class(subjects.ClassInteractive, 15), class(subjects.ClassInteractive, 16),
		} {
			g, _ := reserveAside(context.Background(), l, c)
			got = append(got, g)
		}
		small, _ := reserveAside(context.Background(), l, class(subjects.ClassInteractive, 5))
		if len(small) != 0 {
			t.Error("an interactive call overtakes another")
		}
		pay(first, 0, 40) // 60 are left, of which the two interactive ones take 62
		synctest.Wait()
		if len(got[2]) != 1 || len(got[0])+len(got[1])+len(got[3]) != 0 {
			t.Fatalf("granted: %d %d, interactive %d %d", len(got[0]), len(got[1]), len(got[2]), len(got[3]))
		}
		pay(<-got[2], 0, 0)
		synctest.Wait()
		if len(got[3]) != 1 || len(small) != 1 {
			t.Errorf("then %d and %d", len(got[3]), len(small))
		}
		pay(<-got[3], 0, 0)
		pay(<-small, 0, 0)
		synctest.Wait()
		if len(got[0]) != 1 {
			t.Error("the batch does not go on")
		}
		pay(<-got[0], 0, 0)
		pay(<-got[1], 0, 0)
	})
}
