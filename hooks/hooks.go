// Package hooks is Sluice's three injection points: a mock service that gives
// the mock provider its answers, a budget tracker that says whether more may be
// spent, and a sensitivity classifier that says how confidential content is.
//
// Each is a Go interface for programs that embed a node, and a NATS subject that
// Sluice asks (Service), answerable in any language. The message types are the
// same for both; docs/hooks.md spells out their JSON.
//
// Who implements an interface need not care for time or faults: Sluice asks
// under a timeout, and a hook that is slow, hangs, panics or answers nonsense is
// a hook that failed, for which the configuration has a rule (onError).
package hooks

import (
	"context"
	"errors"

	"github.com/sluice-llm/sluice/subjects"
)

// MockService gives the mock provider its answers. Safe for concurrent use.
type MockService interface {
	// MockResponse returns the text of the answer. ErrBuiltIn leaves it to the
	// built-in mock.
	MockResponse(ctx context.Context, req *MockRequest) (string, error)
}

// BudgetTracker says whether a call may cost money, and hears what calls cost.
// With one set, the built-in limits (cost_limits, batch_cost_limits) do not
// apply. Safe for concurrent use.
type BudgetTracker interface {
	// OverBudget is asked before a call is routed.
	OverBudget(ctx context.Context, q *BudgetQuestion) (*BudgetAnswer, error)
	// TrackCost is told of a cost after the call's end and beside it: it may come
	// late and in any order, and is lost when this fails or the tracker is slower
	// than the calls. The usage log (subjects.UsageStream) loses none.
	TrackCost(ctx context.Context, cost *BudgetCost) error
}

// SensitivityClassifier says how confidential the content of a call is, before
// it is routed, looked up in the cache or previewed. Safe for concurrent use.
type SensitivityClassifier interface {
	Classify(ctx context.Context, content *Content) (*Classification, error)
}

// ErrBuiltIn is what a MockService returns for a task that it has no answer for.
var ErrBuiltIn = errors.New("hooks: the built-in mock is to answer")

// MockRequest asks for the answer to a call that goes to the mock provider.
type MockRequest struct {
	CallID  string `json:"callId"`
	Process string `json:"process"`
	Task    string `json:"task"`
	Tier    string `json:"tier"`
	Class   string `json:"class"`
	AgentID string `json:"agentId"`
	RunID   string `json:"runId"`
	Model   string `json:"model"`
	// Text has the texts of the prompt, at most MaxText bytes; Truncated says that
	// there was more.
	Text      string `json:"text"`
	Truncated bool   `json:"truncated"`
}

// Content is what a classifier sees of a call.
type Content struct {
	CallID  string `json:"callId"`
	Process string `json:"process"`
	Task    string `json:"task"`
	Class   string `json:"class"`
	AgentID string `json:"agentId"`
	RunID   string `json:"runId"`
	// Text has the texts of all messages, with a newline between two, then those
	// that describe the tools; at most MaxText bytes. Truncated says that there was
	// more, which the classifier has not seen.
	Text      string `json:"text"`
	Truncated bool   `json:"truncated"`
	// Attachments counts the images and files, which are no text.
	Attachments int `json:"attachments"`
	// Providers are the ids of those that could be asked.
	Providers []string `json:"providers"`
}

// MaxText bounds Content.Text and MockRequest.Text: 256 KiB.
const MaxText = 256 << 10

// Classification is a classifier's answer.
type Classification struct {
	// Sensitivity is public, internal or confidential.
	Sensitivity string `json:"sensitivity"`
	// AllowedProviders lists the providers that may see the content, by id; nil (in
	// JSON null, or left out) = as the configuration's section sensitivity says,
	// which holds beside this list, too. An empty list allows none.
	AllowedProviders []string `json:"allowedProviders"`
}

// Words of Classification.Sensitivity.
const (
	Public       = "public"
	Internal     = "internal"
	Confidential = "confidential"
)

// KnownSensitivity reports whether word is one of the three.
func KnownSensitivity(word string) bool {
	return word == Public || word == Internal || word == Confidential
}

// BudgetQuestion asks whether a call may still cost money.
type BudgetQuestion struct {
	CallID  string `json:"callId"`
	Process string `json:"process"`
	Task    string `json:"task"`
	Class   string `json:"class"`
	RunID   string `json:"runId"`
	BatchID string `json:"batchId"`
	// Providers are the ids of those that could be asked.
	Providers []string `json:"providers"`
}

// BudgetAnswer is a tracker's answer.
type BudgetAnswer struct {
	OverBudget bool `json:"overBudget"`
	// RemainingUSD is what is left; nil = not known.
	RemainingUSD *subjects.USD `json:"remainingUsd"`
	// Reason is a text for people: which budget it is.
	Reason string `json:"reason"`
}

// BudgetCost is what a call has used, or a try of it that failed and used tokens.
// Answers from the cache use nothing and are not told.
type BudgetCost struct {
	CallID   string `json:"callId"`
	Process  string `json:"process"`
	Task     string `json:"task"`
	Class    string `json:"class"`
	RunID    string `json:"runId"`
	BatchID  string `json:"batchId"`
	Provider string `json:"provider"`
	Model    string `json:"model"`
	// Subscription is the kind of account, as in usage records.
	Subscription string `json:"subscription"`
	InputTokens  int64  `json:"inputTokens"`
	OutputTokens int64  `json:"outputTokens"`
	TotalTokens  int64  `json:"totalTokens"`
	// CostUSD is nil when the price is not known; 0 on a subscription.
	CostUSD *subjects.USD `json:"costUsd"`
	// SavedUSD is what the tokens would have cost on the metered twin; nil = not known.
	SavedUSD *subjects.USD `json:"savedUsd"`
	// Outcome is "ok" or the kind of the error.
	Outcome string `json:"outcome"`
}
