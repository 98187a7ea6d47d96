package subjects

// BreakerEvent is the payload of llm.breaker.<provider>: its circuit breaker
// opened, half-opened or closed.
type BreakerEvent struct {
	Provider string `json:"provider"`
	// State is BreakerClosed, BreakerOpen or BreakerHalfOpen, From the one before.
	State string `json:"state"`
	From  string `json:"from"`
	// Reason is the kind of the error that opened it.
	Reason   string `json:"reason,omitempty"`
	Failures int    `json:"failures,omitempty"`
	RetryAt  *Time  `json:"retryAt,omitempty"`
	At       Time   `json:"at"`
}

// QuotaEvent is the payload of llm.quota.<provider>: a quota ran out or came
// back, or the soft limit was passed.
type QuotaEvent struct {
	Provider string `json:"provider"`
	// Model is set when the quota is that of one model alone.
	Model string `json:"model,omitempty"`
	// State is QuotaOK, QuotaSoftLimit or QuotaExhausted.
	State   string `json:"state"`
	RetryAt *Time  `json:"retryAt,omitempty"`
	ResetAt *Time  `json:"resetAt,omitempty"`
	At      Time   `json:"at"`
}

// Scopes of a budget.
const (
	BudgetRun   = "run"
	BudgetBatch = "batch"
	BudgetTotal = "total"
)

// BudgetEvent is the payload of llm.budget: a budget crossed 50, 80, 90 or 100
// per cent. Each mark is said once for a budget.
type BudgetEvent struct {
	// Scope is run, batch or total, ID the run's or batch's name, or the period of
	// a total (2026-12).
	Scope string `json:"scope"`
	ID    string `json:"id,omitempty"`
	// Unit is usd or tokens; Spent and Limit are in it.
	Unit    string  `json:"unit"`
	Percent int     `json:"percent"`
	Spent   float64 `json:"spent"`
	Limit   float64 `json:"limit"`
	At      Time    `json:"at"`
}

// HookEvent is the payload of llm.hook_status.<hook>: its service fails, or
// answers again. It is sent once for each change.
type HookEvent struct {
	Hook    string `json:"hook"`
	OK      bool   `json:"ok"`
	Reason  string `json:"reason,omitempty"`
	OnError string `json:"onError,omitempty"`
	At      Time   `json:"at"`
}

// ConfigEvent is the payload of llm.config.
type ConfigEvent struct {
	OK    bool   `json:"ok"`
	File  string `json:"file"`
	Error string `json:"error,omitempty"`
	At    Time   `json:"at"`
}
