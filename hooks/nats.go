package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/subjects"
)

// Service is a hook that is asked over NATS: each question is one request to its
// subject, the message as JSON, and one reply. It implements all three
// interfaces; one subject serves one of them.
//
// Its errors are *subjects.Error whose messages hold nothing that the service
// has written: nobody answers (PROVIDER_UNAVAILABLE), an error reply or one that
// is not what docs/hooks.md says (PROVIDER_ERROR), the end of ctx.
type Service struct {
	transport subjects.Transport
	subject   string
}

var (
	_ MockService           = (*Service)(nil)
	_ BudgetTracker         = (*Service)(nil)
	_ SensitivityClassifier = (*Service)(nil)
)

// OverNATS makes the hook that answers on a subject.
func OverNATS(t subjects.Transport, subject string) *Service {
	return &Service{transport: t, subject: subject}
}

// The two questions of llm.hook.budget.
const (
	QuestionOverBudget = "over_budget"
	QuestionTrackCost  = "track_cost"
)

// MockResponse implements MockService. The reply is {"content": "…"}.
func (s *Service) MockResponse(ctx context.Context, req *MockRequest) (string, error) {
	var reply struct {
		Content *string `json:"content"`
	}
	if err := s.ask(ctx, req, &reply); err != nil {
		return "", err
	}
	if reply.Content == nil {
		return "", s.nonsense("content", "a string is needed")
	}
	return *reply.Content, nil
}

// OverBudget implements BudgetTracker. The reply is a BudgetAnswer.
func (s *Service) OverBudget(ctx context.Context, q *BudgetQuestion) (*BudgetAnswer, error) {
	var reply struct {
		Over *bool `json:"overBudget"`
		BudgetAnswer
	}
	question := struct {
		Question string `json:"question"`
		*BudgetQuestion
	}{QuestionOverBudget, q}
	if err := s.ask(ctx, question, &reply); err != nil {
		return nil, err
	}
	if reply.Over == nil {
		return nil, s.nonsense("overBudget", "true or false is needed")
	}
	reply.OverBudget = *reply.Over
	return &reply.BudgetAnswer, nil
}

// TrackCost implements BudgetTracker. Any reply but an error will do.
func (s *Service) TrackCost(ctx context.Context, cost *BudgetCost) error {
	return s.ask(ctx, struct {
		Question string `json:"question"`
		*BudgetCost
	}{QuestionTrackCost, cost}, nil)
}

// Classify implements SensitivityClassifier. The reply is a Classification.
func (s *Service) Classify(ctx context.Context, content *Content) (*Classification, error) {
	reply := &Classification{}
	if err := s.ask(ctx, content, reply); err != nil {
		return nil, err
	}
	if !KnownSensitivity(reply.Sensitivity) {
		return nil, s.nonsense("sensitivity", "public, internal or confidential is needed")
	}
	return reply, nil
}

// ask makes one request and reads the reply into out; nil = it is not read.
func (s *Service) ask(ctx context.Context, question, out any) error {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // prompts are full of < and >, which need not take six bytes
	if err := enc.Encode(question); err != nil {
		return subjects.Errorf(subjects.KindProvider, "the question to %s cannot be written as JSON", s.subject)
	}
	reply, err := s.transport.Request(ctx, &subjects.Msg{Subject: s.subject, Data: body.Bytes()})
	switch {
	case err != nil:
		return s.failed(ctx, err)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(reply.Data, out); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			return s.nonsense(wrong.Field, "it has the wrong type")
		}
		return subjects.Errorf(subjects.KindProvider, "the reply of %s is not the JSON that docs/hooks.md says", s.subject)
	}
	return nil
}

func (s *Service) nonsense(field, why string) error {
	return subjects.Errorf(subjects.KindProvider, "the reply of %s, field %s: %s", s.subject, field, why)
}

// failed says why there is no reply. The text of an error reply may repeat the
// question, so it is left out.
func (s *Service) failed(ctx context.Context, err error) error {
	e := subjects.AsError(err)
	switch {
	case ctx.Err() != nil:
		return subjects.AsError(context.Cause(ctx))
	case errors.Is(err, nats.ErrNoResponders):
		return subjects.Errorf(subjects.KindProviderUnavailable, "nobody answers %s: start the service that does", s.subject)
	case e.Code == subjects.CodeTooLarge:
		return subjects.Errorf(subjects.KindProvider, "the question to %s is larger than this NATS server carries; raise max_payload in nats.conf", s.subject)
	case e.Unwrap() != nil:
		return subjects.Errorf(subjects.KindProviderUnavailable, "the NATS connection failed")
	}
	return subjects.Errorf(subjects.KindProvider, "%s replied with an error (code %d)", s.subject, e.Status())
}
