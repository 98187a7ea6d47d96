package config

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// TestDefaultLimits holds the seed's values, and Sluice's own beside them.
func TestDefaultLimits(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "")
	if want := (Cache{1000, time.Hour, 64 << 20, 1 << 20}); c.Cache != want {
		t.Errorf("cache: %+v", c.Cache)
	}
	if want := (Breaker{5, time.Minute, 30 * time.Minute}); c.Breaker != want {
		t.Errorf("breaker: %+v", c.Breaker)
	}
	costs := Costs{
		PerRun:      map[string]subjects.USD{CostBudget: 50_000, CostStandard: 500_000, CostQuality: 2_000_000},
		BatchTokens: 500_000, BatchUSD: 1_000_000, TotalUSD: 50_000_000, TotalPeriod: PeriodMonth, Fallback: true,
	}
	if !reflect.DeepEqual(c.Costs, costs) || c.CostMode != CostStandard || c.RunLimit() != 500_000 {
		t.Errorf("costs: %+v, mode %s, a run %s", c.Costs, c.CostMode, c.RunLimit())
	}
	if len(c.Quota.Reserve) != 0 || len(c.Hooks) != 0 || len(c.TaskPriority) != 0 {
		t.Errorf("%v %v %v", c.Quota, c.Hooks, c.TaskPriority)
	}
	allow := map[string][]string{Public: {AllowAll}, Internal: {AllowAll}, Confidential: {AllowLocal}}
	if !reflect.DeepEqual(c.Sensitivity.Allow, allow) {
		t.Errorf("sensitivity: %v", c.Sensitivity)
	}
	for _, id := range ProviderIDs {
		q := c.Providers[id].Quota
		if subscription := id == "claude-code" || id == "copilot"; (q != nil) != subscription || q != nil && *q != (QuotaTracking{true, 100}) {
			t.Errorf("%s: quota %+v", id, q)
		}
	}
}

// limitsFile sets each of them to something else.
const limitsFile = `
cost_mode: quality
cache: {maxSize: 0, ttlMs: 5, maxBytes: 6, maxEntryBytes: 7}
circuit_breaker: {threshold: 2, resetTimeoutMs: 30, maxResetTimeoutMs: 40}
cost_limits: {budget_mode: 0, standard_mode: none, quality_mode: 0.000001}
batch_cost_limits: {max_tokens_per_batch: none, max_cost_per_batch_usd: "none", total_budget_usd: 12.345678, total_budget_period: day, fallback_on_quota: false}
quota: {reserve: {interactive: 0.2, ingestion: 0}}
task_priority: {a task: [dmr, groq], another: []}
sensitivity: {allow: {internal: [local, groq], confidential: []}}
hooks:
  mock: {subject: my.mock}
  budget:
  sensitivity: {timeoutMs: 1000, onError: deny}
providers:
  copilot: {quotaTracking: {enabled: false, softLimitPerHour: 0}}
`

func checkLimitsFile(t *testing.T, c *Config) {
	t.Helper()
	if want := (Cache{0, 5 * time.Millisecond, 6, 7}); c.Cache != want {
		t.Errorf("cache: %+v", c.Cache)
	}
	if want := (Breaker{2, 30 * time.Millisecond, 40 * time.Millisecond}); c.Breaker != want {
		t.Errorf("breaker: %+v", c.Breaker)
	}
	costs := Costs{
		PerRun:      map[string]subjects.USD{CostBudget: 0, CostStandard: NoLimit, CostQuality: 1},
		BatchTokens: NoLimit, BatchUSD: NoLimit, TotalUSD: 12_345_678, TotalPeriod: PeriodDay,
	}
	if !reflect.DeepEqual(c.Costs, costs) || c.RunLimit() != 1 {
		t.Errorf("costs: %+v, a run %s", c.Costs, c.RunLimit())
	}
	if want := map[string]float64{"interactive": 0.2, "ingestion": 0}; !reflect.DeepEqual(c.Quota.Reserve, want) {
		t.Errorf("quota: %v", c.Quota)
	}
	if got := fmt.Sprint(c.TaskPriority); got != "map[a task:[dmr groq] another:[]]" {
		t.Errorf("order by task: %s", got)
	}
	if got := fmt.Sprint(c.Sensitivity.Allow); got != "map[confidential:[] internal:[local groq] public:[all]]" {
		t.Errorf("sensitivity: %s", got)
	}
	hooks := map[string]Hook{
		HookMock:        {"my.mock", 250 * time.Millisecond, OnErrorAllow},
		HookBudget:      {"llm.hook.budget", 250 * time.Millisecond, OnErrorAllow},
		HookSensitivity: {"llm.hook.sensitivity", time.Second, OnErrorDeny},
	}
	if !reflect.DeepEqual(c.Hooks, hooks) {
		t.Errorf("hooks: %+v", c.Hooks)
	}
	if q := c.Providers["copilot"].Quota; *q != (QuotaTracking{}) {
		t.Errorf("copilot: %+v", q)
	}
	if len(c.Notes) != 0 {
		t.Errorf("notes: %q", c.Notes)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	checkLimitsFile(t, mustLoad(t, limitsFile))
	if err := schemaFault(t, limitsFile); err != nil {
		t.Error(err)
	}
}

// TestOverAndOver lays the file over itself, as a reload does, and by variables.
func TestOverAndOver(t *testing.T) {
	t.Parallel()
	first := mustLoad(t, limitsFile)
	for range 3 {
		again := mustLoad(t, limitsFile)
		if checkLimitsFile(t, again); !first.Equal(again) {
			t.Error("the same file makes another configuration")
		}
	}
	c := mustLoad(t, `cost_limits: {budget_mode: "${LIMIT}"}`, "LIMIT=0.25")
	if got := c.Costs.PerRun[CostBudget]; got != 250_000 {
		t.Errorf("%s", got)
	}
}

// TestNamedByTask: who names custom or the proxy in the order of a task has
// given it its place.
func TestNamedByTask(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "task_priority: {a: [proxy, mine]}\nproviders: {mine: {api: openai, baseUrl: http://h/v1}, proxy: {baseUrl: http://h}}")
	if got := c.ProviderPriority["fast"]; len(got) != 7 {
		t.Errorf("%q", got)
	}
	if got := c.TaskPriority["a"]; len(got) != 2 {
		t.Errorf("%q", got)
	}
}

// TestRunLimit: a mode without a limit of its own has none.
func TestRunLimit(t *testing.T) {
	t.Parallel()
	c := &Config{CostMode: CostQuality, Costs: Costs{PerRun: map[string]subjects.USD{CostBudget: 1}}}
	if got := c.RunLimit(); got != NoLimit {
		t.Errorf("%d", got)
	}
}

// TestAmountsAreExact writes amounts and reads them back, to the micro-dollar.
func TestAmountsAreExact(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		want := subjects.USD(rng.Int64N(maxUSD * 1_000_000))
		if rng.IntN(2) == 0 {
			want = subjects.USD(rng.Int64N(3_000_000))
		}
		n, ok := parseMicro(want.String(), maxUSD)
		if subjects.USD(n) != want || !ok {
			t.Errorf("%s: %d, %t", want, n, ok)
		}
	}
}

// TestStandIn: the mock may stand in a vendor's place, whose account says then
// whether it is local.
func TestStandIn(t *testing.T) {
	t.Parallel()
	p := mustLoad(t, "").Providers["copilot"]
	p.Kind, p.Mock = KindMock, &Mock{}
	if p.Local() || p.Account != subjects.SubscriptionCopilot {
		t.Errorf("%+v", p)
	}
	if mock := mustLoad(t, "").Providers["mock"]; mock.Kind != KindMock || !mock.Local() {
		t.Errorf("%+v", mock)
	}
	if c, err := Load(text("providers: {groq: {kind: mock}}")); err == nil {
		t.Errorf("a file made a stand-in: %+v", c.Providers["groq"])
	}
}
