package wire

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// The native wire seen from its other side: requests that Sluice writes for
// another party to serve (another Sluice, the older bridge, an outside
// provider), and the answers that come back. The caller's side is in native.go
// and stream.go.

// NativeNeeds is all that the native wire can say.
const NativeNeeds = NeedTools | NeedToolChoice | NeedImages | NeedImageURLs | NeedJSONMode | NeedJSONSchema | NeedStreaming

// nativePrompt are the fields that say what the model is asked; all others are
// about routing, which is between the caller and this Sluice.
var nativePrompt = []string{
	"messages", "tools", "toolChoice", "temperature", "topP", "maxTokens", "stop", "responseFormat",
	"seed", "reasoningEffort", "parallelToolCalls",
}

// NativeAsk is what a request for another party says beside its prompt. An
// empty field is not sent.
type NativeAsk struct {
	Model     string
	Tier      string
	Task      string
	Process   string
	SkipCache bool
	ForcePaid bool
	Stream    bool
}

// Native writes the request as a native body for another party to serve: the
// prompt and what ask says, and nothing else of what the caller said of routing.
// A native body's values are copied as they are; another wire's are decoded and
// encoded anew. by is who serves: warnings name it beside what the wire cannot
// carry.
func (r *Request) Native(ask *NativeAsk, by string) (body []byte, warnings []string, err error) {
	if r.Wire == Native {
		return spliceNative(r.Body, ask), nil, nil
	}
	chat, err := r.Chat()
	if err != nil {
		return nil, nil, err
	}
	prompt := chat.Prompt
	prompt.Stream = false
	b, err := json.Marshal(&prompt)
	if err != nil {
		return nil, nil, invalid("request", "cannot be written as JSON").WithCause(err)
	}
	return append(ask.append(b[:len(b)-1]), '}'), notNative(chat, by), nil
}

// spliceNative copies the prompt's fields of a body that Parse accepted.
func spliceNative(body []byte, ask *NativeAsk) []byte {
	dst := append(make([]byte, 0, len(body)+len(ask.Model)+len(ask.Task)+len(ask.Process)+128), '{')
	for f := range view(body).fields() {
		if !f.Value.isNull() && slices.Contains(nativePrompt, f.Key) {
			dst = append(appendKey(dst, f.Key), f.Value...)
		}
	}
	return append(ask.append(dst), '}')
}

func (a *NativeAsk) append(dst []byte) []byte {
	for _, f := range [...]struct{ key, value string }{
		{"model", a.Model}, {"tier", a.Tier}, {"task", a.Task}, {"process", a.Process},
	} {
		if f.value != "" {
			dst = appendText(dst, f.key, f.value)
		}
	}
	for _, f := range [...]struct {
		key string
		yes bool
	}{{"skipCache", a.SkipCache}, {"forcePaid", a.ForcePaid}, {"stream", a.Stream}} {
		if f.yes {
			dst = appendBool(dst, f.key, true)
		}
	}
	return dst
}

// notNative names what the native wire has no field for. It all steers at most:
// what a request needs is in its Needs.
func notNative(c *Chat, by string) []string {
	var out []string
	left := func(what string) { out = append(out, what+" is not supported by "+by+" and was left out") }
	if c.FrequencyPenalty != nil {
		left("frequencyPenalty")
	}
	if c.PresencePenalty != nil {
		left("presencePenalty")
	}
	if c.User != "" {
		left("user")
	}
	for _, field := range c.Left {
		left(field)
	}
	return out
}

// ReadNative reads a native result, or one of the older bridge, whose tokens
// stand in tokens{input,output}. provider is who answered, as the result says;
// Model is modelRaw, or else model. A usage that is not there is not known; one
// that is marked as an estimate stays so. It refuses what is not such a result.
func ReadNative(body []byte) (resp *Response, provider string, err error) {
	v := view(body)
	if !v.isObject() || !ValidJSON(body) {
		return nil, "", notAResult()
	}
	var n nativeResult
	n.read(v)
	if !n.isResult() {
		return nil, "", notAResult()
	}
	resp = &Response{}
	if resp.Text = strings.Clone(n.content.str()); len(resp.Text) > maxAnswer {
		return nil, "", tooLong()
	}
	if resp.ToolCalls, err = n.toolCalls(); err != nil {
		return nil, "", err
	}
	n.sum(resp)
	resp.OutputBytes = int64(len(resp.Text)) + callBytes(resp.ToolCalls)
	return resp, boundedName(n.provider), nil
}

func notAResult() error {
	return subjects.Errorf(subjects.KindProvider, "the answer is not a native result: it has neither content nor toolCalls")
}

// nativeResult are the members of a result that a provider's answer is made of.
type nativeResult struct {
	content, calls, finish        raw
	provider, model, modelRaw     raw
	usage, tokens, warnings, kind raw
}

func (n *nativeResult) read(v raw) {
	for f := range v.fields() {
		switch f.Key {
		case "type":
			n.kind = f.Value
		case "content":
			n.content = f.Value
		case "toolCalls":
			n.calls = f.Value
		case "finishReason":
			n.finish = f.Value
		case "provider":
			n.provider = f.Value
		case "model":
			n.model = f.Value
		case "modelRaw":
			n.modelRaw = f.Value
		case "usage":
			n.usage = f.Value
		case "tokens":
			n.tokens = f.Value
		case "warnings":
			n.warnings = f.Value
		}
	}
}

// isResult tells a result from other JSON, and from an event of a stream that
// nobody asked for.
func (n *nativeResult) isResult() bool {
	if n.kind != "" && n.kind.str() != subjects.EventResult {
		return false
	}
	return n.content.isString() || n.calls.isArray() && n.calls.count() > 0
}

func (n *nativeResult) toolCalls() ([]subjects.ToolCall, error) {
	var out []subjects.ToolCall
	size := 0
	for _, c := range n.calls.items() {
		call, err := nativeCall(c)
		if err != nil {
			return nil, err
		}
		if size += len(call.Name) + len(call.Arguments); size > maxAnswer {
			return nil, tooLong()
		}
		out = append(out, call)
	}
	return out, nil
}

// nativeCall reads one tool call. One without an id gets one; empty arguments
// are the empty object, and an object stands for its text.
func nativeCall(v raw) (subjects.ToolCall, error) {
	args := v.get("arguments")
	call := subjects.ToolCall{ID: strings.Clone(v.get("id").str()), Name: strings.Clone(v.get("name").str()), Arguments: strings.Clone(args.str())}
	if args.isObject() {
		call.Arguments = string(append([]byte(nil), args...))
	}
	if call.Name == "" {
		return call, subjects.Errorf(subjects.KindProvider, "the answer has a tool call without a name")
	}
	if call.ID == "" {
		call.ID = newCallID()
	}
	if strings.TrimSpace(call.Arguments) == "" {
		call.Arguments = "{}"
	}
	return call, nil
}

// sum fills in all but the text and the tool calls.
func (n *nativeResult) sum(resp *Response) {
	resp.FinishReason = finishReason(n.finish.str(), len(resp.ToolCalls) > 0, false)
	if resp.Model = boundedName(n.modelRaw); resp.Model == "" {
		resp.Model = boundedName(n.model)
	}
	resp.Usage, resp.UsageKnown = nativeUsage(n.usage)
	if !resp.UsageKnown {
		resp.Usage, resp.UsageKnown = olderUsage(n.tokens)
	}
	for i, w := range n.warnings.items() {
		if i < maxWarnings && w.inner() != "" {
			resp.Warnings = append(resp.Warnings, boundedName(w))
		}
	}
}

// maxWarnings bounds the warnings that are passed on of one answer.
const maxWarnings = 32

// nativeUsage reads a usage object. Its counts are the contract's already.
func nativeUsage(v raw) (u subjects.Usage, known bool) {
	for f := range v.fields() {
		switch f.Key {
		case "inputTokens":
			u.InputTokens, known = count(f.Value), known || f.Value.isNumber()
		case "outputTokens":
			u.OutputTokens, known = count(f.Value), known || f.Value.isNumber()
		case "cacheReadTokens":
			u.CacheReadTokens = count(f.Value)
		case "cacheWriteTokens":
			u.CacheWriteTokens = count(f.Value)
		case "reasoningTokens":
			u.ReasoningTokens = count(f.Value)
		case "estimated":
			u.Estimated = f.Value.kind() == 't'
		}
	}
	if !known {
		return subjects.Usage{}, false
	}
	u.ReasoningTokens = min(u.ReasoningTokens, u.OutputTokens)
	u.TotalTokens = u.InputTokens + u.OutputTokens
	return u, true
}

// olderUsage reads the bridge's tokens{input,output,total}.
func olderUsage(v raw) (u subjects.Usage, known bool) {
	in, out := v.get("input"), v.get("output")
	if !in.isNumber() && !out.isNumber() {
		return u, false
	}
	u.InputTokens, u.OutputTokens = count(in), count(out)
	u.TotalTokens = u.InputTokens + u.OutputTokens
	return u, true
}

func callBytes(calls []subjects.ToolCall) int64 {
	n := 0
	for i := range calls {
		n += len(calls[i].Name) + len(calls[i].Arguments)
	}
	return int64(n)
}
