package wire

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// The fields of the native wire; nativeOld are the names of older callers.
var (
	nativeFields = []string{
		"messages", "tools", "toolChoice", "temperature", "topP", "maxTokens", "stop", "responseFormat", "stream",
		"seed", "reasoningEffort", "parallelToolCalls",
		"tier", "task", "process", "provider", "model", "agentId", "privacy", "skipCache", "forcePaid",
		"timeoutMs", "callId", "runId", "batchId", "cacheScope",
	}
	nativeOld = []string{"taskType", "operationType", "timeout", "agent", "subscription"}

	nativeKnown         = slices.Concat(nativeFields, nativeOld)
	nativeMessageFields = []string{"role", "content", "name", "toolCalls", "toolCallId"}
	nativePartFields    = []string{"type", "text", "imageUrl", "detail"}
	nativeToolFields    = []string{"name", "description", "parameters", "strict"}
	nativeCallFields    = []string{"id", "name", "arguments"}
	nativeFormatFields  = []string{"type", "name", "schema", "strict"}
	nativeRoles         = []string{"system", "user", "assistant", "tool"}
)

// native reads one native request.
type native struct {
	reader
	req   *Request
	sum   tally
	seen  seen
	task  string // from taskType or operationType
	kind  string // from subscription
	tools raw
	pick  raw
}

func parseNative(r *Request, body raw) *subjects.Error {
	n := &native{req: r, sum: tally{plain: true}}
	hasMessages := false
	for f := range body.fields() {
		i := slices.Index(nativeKnown, f.Key)
		switch {
		case i < 0:
			n.unknown(f.Key, nativeFields)
		case n.seen.again(i):
			n.fail(invalid(f.Key, "is given twice; send it once"))
		case f.Key == "messages":
			hasMessages = true
			n.messages(f.Value)
		case !n.prompt(f.Key, f.Value):
			n.routing(f.Key, f.Value)
		}
		if n.err != nil {
			return n.err
		}
	}
	if !hasMessages {
		return invalid("messages", "missing; send an array with at least one message")
	}
	return n.finish()
}

func (n *native) finish() *subjects.Error {
	h := &n.req.Head
	h.Task = cmp.Or(h.Task, n.task)
	n.account()
	h.Needs |= n.sum.needs
	if n.sum.tools {
		h.Needs |= NeedTools
	}
	n.req.plain = n.sum.plain
	n.toolChoice(n.pick)
	return n.err
}

// prompt reads a field of what the model is asked; false = not one of them.
func (n *native) prompt(key string, v raw) bool {
	h := &n.req.Head
	switch key {
	case "tools":
		n.tools = v
		n.readTools(v)
	case "toolChoice":
		n.pick = v
	case "temperature":
		n.number(key, v, 0, maxHeat)
	case "topP":
		n.number(key, v, 0, 1)
	case "maxTokens":
		h.MaxTokens, _ = n.whole(key, v, 1, maxTokens)
	case "stop":
		n.stop(key, v)
	case "responseFormat":
		n.format(v)
	case "stream":
		if h.Stream = n.boolean(key, v); h.Stream {
			h.Needs |= NeedStreaming
		}
	case "seed":
		n.whole(key, v, math.MinInt64, math.MaxInt64)
	case "reasoningEffort":
		n.oneOf(key, v, Efforts...)
	case "parallelToolCalls":
		n.boolean(key, v)
	default:
		return false
	}
	return true
}

func (n *native) routing(key string, v raw) {
	h := &n.req.Head
	switch key {
	case "tier":
		h.Tier = n.oneOf(key, v, subjects.Tiers...)
	case "task":
		h.Task = n.name(key, v, subjects.MaxName)
	case "process":
		h.Process = n.name(key, v, subjects.MaxName)
	case "provider":
		h.Provider = n.name(key, v, subjects.MaxName)
	case "model":
		h.Model = n.name(key, v, subjects.MaxName)
	case "agentId", "agent":
		if s := n.name(key, v, subjects.MaxName); key == "agentId" || h.AgentID == "" {
			h.AgentID = s
		}
	case "privacy":
		h.Privacy = n.oneOf(key, v, "local", "any")
	case "skipCache":
		h.SkipCache = n.boolean(key, v)
	case "forcePaid":
		h.ForcePaid = n.boolean(key, v)
	case "timeoutMs", "timeout":
		if ms, _ := n.whole(key, v, 0, subjects.MaxTimeoutMs); key == "timeoutMs" || h.Timeout == 0 {
			h.Timeout = time.Duration(ms) * time.Millisecond
		}
	case "callId":
		h.CallID = n.name(key, v, subjects.MaxCallID)
	case "runId":
		h.RunID = n.name(key, v, subjects.MaxName)
	case "batchId":
		h.BatchID = n.name(key, v, subjects.MaxName)
	case "cacheScope":
		h.CacheScope = n.name(key, v, subjects.MaxName)
	case "taskType", "operationType":
		if s := n.name(key, v, subjects.MaxName); key == "taskType" || n.task == "" {
			n.task = s
		}
	case "subscription":
		n.subscription(v)
	}
}

// subscription understands the older callers' wish for a kind of account: a
// kind as usage records name it asks for the account of that kind; true (a
// subscription, please) is the default and says nothing, false is forcePaid.
func (n *native) subscription(v raw) {
	if v.isBool() {
		if v.kind() == 'f' {
			n.kind = subjects.SubscriptionAPIKey
		}
		return
	}
	n.kind = n.oneOf("subscription", v, subjects.SubscriptionCopilot, subjects.SubscriptionMax,
		subjects.SubscriptionAPIKey, subjects.SubscriptionLocal, subjects.SubscriptionMock)
}

// account applies subscription; what the newer fields say wins.
func (n *native) account() {
	h := &n.req.Head
	switch n.kind {
	case subjects.SubscriptionAPIKey:
		h.ForcePaid = true
	case subjects.SubscriptionLocal:
		h.Privacy = cmp.Or(h.Privacy, "local")
	case subjects.SubscriptionCopilot:
		h.Provider = cmp.Or(h.Provider, "copilot")
	case subjects.SubscriptionMax:
		h.Provider = cmp.Or(h.Provider, "claude-code")
	case subjects.SubscriptionMock:
		h.Provider = cmp.Or(h.Provider, "mock")
	}
}

func (n *native) messages(v raw) {
	if !v.isArray() {
		n.fail(invalid("messages", "must be an array with at least one message, not %s", v.what()))
		return
	}
	if n.each("messages", v, subjects.MaxMessages, n.message) == 0 {
		n.fail(invalid("messages", "is empty; send at least one message"))
	}
}

func (n *native) message(m raw) {
	if !m.isObject() {
		n.fail(invalid("", "must be an object, not %s", m.what()))
		return
	}
	var role string
	var content, calls, callID raw
	for f := range m.fields() {
		switch f.Key {
		case "role":
			role = n.oneOf("role", f.Value, nativeRoles...)
		case "content":
			content = f.Value
		case "name":
			n.name("name", f.Value, subjects.MaxName)
		case "toolCalls":
			calls = f.Value
			n.each("toolCalls", f.Value, subjects.MaxTools, n.toolCall)
		case "toolCallId":
			callID = f.Value
			n.name("toolCallId", f.Value, subjects.MaxName)
		default:
			n.unknown(f.Key, nativeMessageFields)
		}
		if n.err != nil {
			return
		}
	}
	n.turn(role, content, calls, callID)
}

// turn checks that a message's fields go together.
func (n *native) turn(role string, content, calls, callID raw) {
	hasCalls := calls.isArray() && calls.count() > 0
	switch {
	case role == "":
		n.fail(invalid("role", "missing; it is one of %s", strings.Join(nativeRoles, ", ")))
	case hasCalls && role != "assistant":
		n.fail(invalid("toolCalls", "only an assistant message has them"))
	case role == "tool" && (!callID.isString() || callID.inner() == ""):
		n.fail(invalid("toolCallId", "missing; a tool message names the call that it answers"))
	case role != "tool" && callID != "" && !callID.isNull():
		n.fail(invalid("toolCallId", "only a tool message has it"))
	}
	if role == "tool" || hasCalls {
		n.sum.tools, n.sum.plain = true, false
	}
	if calls != "" || callID != "" {
		n.sum.plain = false
	}
	if role == "user" {
		n.req.asked = content
	}
	n.content(content, hasCalls)
}

func (n *native) content(v raw, optional bool) {
	switch {
	case v.isString():
	case v.isArray():
		if n.each("content", v, maxPartsEach, n.part) == 0 {
			n.fail(invalid("content", "is an empty array; send a string or at least one part"))
		}
	case v == "" || v.isNull():
		n.sum.plain = false
		if !optional {
			n.fail(invalid("content", "missing; send a string or an array of parts"))
		}
	default:
		n.fail(invalid("content", "must be a string or an array of parts, not %s", v.what()))
	}
}

func (n *native) part(p raw) {
	if !p.isObject() {
		n.fail(invalid("", "must be an object such as {\"type\":\"text\",\"text\":…}, not %s", p.what()))
		return
	}
	var kind string
	var text, url, detail raw
	for f := range p.fields() {
		switch f.Key {
		case "type":
			kind = n.oneOf("type", f.Value, subjects.PartText, subjects.PartImage)
		case "text":
			text = f.Value
		case "imageUrl":
			url = f.Value
		case "detail":
			detail = f.Value
		default:
			n.unknown(f.Key, nativePartFields)
		}
	}
	n.partKind(kind, text, url, detail)
}

func (n *native) partKind(kind string, text, url, detail raw) {
	switch kind {
	case subjects.PartText:
		if !text.isString() {
			n.fail(invalid("text", "must be a string; a text part needs it"))
		}
		if url != "" || detail != "" {
			n.fail(invalid("imageUrl", "a text part has none; use type image"))
		}
	case subjects.PartImage:
		n.sum.needs |= NeedImages
		n.sum.plain = false
		if text != "" {
			n.fail(invalid("text", "an image part has none; send a text part beside it"))
		}
		n.oneOf("detail", orNull(detail), "low", "high", "auto")
		if !strings.HasPrefix(url.inner(), "data:") {
			n.sum.needs |= NeedImageURLs
		}
		if !imageURL(url.inner()) {
			n.fail(invalid("imageUrl", "must be an http(s) URL or a data: URL with base64 content"))
		}
	default:
		n.fail(invalid("type", "missing; it is text or image"))
	}
}

func imageURL(s string) bool {
	s = strings.ReplaceAll(s[:min(len(s), 128)], `\/`, "/")
	if meta, ok := strings.CutPrefix(s, "data:"); ok {
		meta, _, ok = strings.Cut(meta, ",")
		return ok && strings.HasSuffix(meta, ";base64")
	}
	_, rest, ok := strings.Cut(s, "://")
	return ok && rest != "" && (strings.HasPrefix(s, "http:") || strings.HasPrefix(s, "https:"))
}

func orNull(v raw) raw {
	if v == "" {
		return "null"
	}
	return v
}

func (n *native) toolCall(c raw) {
	if !c.isObject() {
		n.fail(invalid("", "must be an object, not %s", c.what()))
		return
	}
	for f := range c.fields() {
		if !slices.Contains(nativeCallFields, f.Key) {
			n.unknown(f.Key, nativeCallFields)
			return
		}
		n.text(f.Key, f.Value)
	}
	for _, key := range nativeCallFields[:2] {
		if c.get(key).inner() == "" {
			n.fail(invalid(key, "missing; a tool call needs an id and a name"))
		}
	}
}

func (n *native) readTools(v raw) {
	count := n.each("tools", v, subjects.MaxTools, func(t raw) {
		if !t.isObject() {
			n.fail(invalid("", "must be an object, not %s", t.what()))
			return
		}
		named := false
		for f := range t.fields() {
			switch f.Key {
			case "name":
				named = n.name("name", f.Value, maxToolName) != ""
			case "description":
				n.text("description", f.Value)
			case "parameters":
				n.object("parameters", f.Value)
			case "strict":
				n.boolean("strict", f.Value)
			default:
				n.unknown(f.Key, nativeToolFields)
			}
		}
		if !named {
			n.fail(invalid("name", "missing; a tool needs one"))
		}
	})
	if count > 0 {
		n.sum.tools = true
	}
}

func (n *native) toolChoice(v raw) {
	switch {
	case v == "" || v.isNull():
	case v.isString():
		mode := n.oneOf("toolChoice", v, "auto", "none", "required")
		if mode == "required" {
			n.req.Head.Needs |= NeedToolChoice
			if n.tools.count() == 0 {
				n.fail(invalid("toolChoice", "is required, but there are no tools; send tools"))
			}
		}
	case v.isObject():
		n.req.Head.Needs |= NeedToolChoice
		n.namedTool(v)
	default:
		n.fail(invalid("toolChoice", "must be auto, none, required or {\"name\":…}, not %s", v.what()))
	}
}

func (n *native) namedTool(v raw) {
	want := ""
	for f := range v.fields() {
		if f.Key != "name" {
			n.unknown(f.Key, []string{"name"})
			break
		}
		want = n.name("name", f.Value, maxToolName)
	}
	n.within("toolChoice")
	for _, t := range n.tools.items() {
		if want != "" && t.get("name").str() == want {
			return
		}
	}
	n.fail(invalid("toolChoice.name", "is not the name of one of the tools"))
}

func (n *native) format(v raw) {
	if !n.object("responseFormat", v) {
		return
	}
	var kind string
	hasSchema := false
	for f := range v.fields() {
		switch f.Key {
		case "type":
			kind = n.oneOf("type", f.Value, "text", "json_object", "json_schema")
		case "name":
			n.name("name", f.Value, subjects.MaxName)
		case "schema":
			hasSchema = n.object("schema", f.Value)
		case "strict":
			n.boolean("strict", f.Value)
		default:
			n.unknown(f.Key, nativeFormatFields)
		}
	}
	switch kind {
	case "":
		n.fail(invalid("type", "missing; it is text, json_object or json_schema"))
	case "json_object":
		n.sum.needs |= NeedJSONMode
	case "json_schema":
		n.sum.needs |= NeedJSONSchema
		if !hasSchema {
			n.fail(invalid("schema", "missing; json_schema needs it"))
		}
	}
	n.within("responseFormat")
}
