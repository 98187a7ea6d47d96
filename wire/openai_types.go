package wire

import "encoding/json"

// The openai-chat request, for the calls that must be translated.

type oaRequest struct {
	Model               string            `json:"model,omitempty"`
	Messages            []oaMessage       `json:"messages"`
	Tools               []oaTool          `json:"tools,omitempty"`
	ToolChoice          json.RawMessage   `json:"tool_choice,omitempty"`
	Functions           []oaFunction      `json:"functions,omitempty"`
	FunctionCall        json.RawMessage   `json:"function_call,omitempty"`
	Temperature         *float64          `json:"temperature,omitempty"`
	TopP                *float64          `json:"top_p,omitempty"`
	MaxTokens           *int64            `json:"max_tokens,omitempty"`
	MaxCompletionTokens *int64            `json:"max_completion_tokens,omitempty"`
	Stop                json.RawMessage   `json:"stop,omitempty"`
	ResponseFormat      *oaResponseFormat `json:"response_format,omitempty"`
	Seed                *int64            `json:"seed,omitempty"`
	FrequencyPenalty    *float64          `json:"frequency_penalty,omitempty"`
	PresencePenalty     *float64          `json:"presence_penalty,omitempty"`
	ParallelToolCalls   *bool             `json:"parallel_tool_calls,omitempty"`
	ReasoningEffort     string            `json:"reasoning_effort,omitempty"`
	User                string            `json:"user,omitempty"`
	Stream              bool              `json:"stream,omitempty"`
	StreamOptions       json.RawMessage   `json:"stream_options,omitempty"`
}

type oaMessage struct {
	Role         string          `json:"role"`
	Content      json.RawMessage `json:"content,omitempty"`
	Refusal      string          `json:"refusal,omitempty"`
	Name         string          `json:"name,omitempty"`
	ToolCalls    []oaToolCall    `json:"tool_calls,omitempty"`
	ToolCallID   string          `json:"tool_call_id,omitempty"`
	FunctionCall *oaCall         `json:"function_call,omitempty"`
}

type oaPart struct {
	Type     string          `json:"type"`
	Text     *string         `json:"text,omitempty"`
	Refusal  string          `json:"refusal,omitempty"`
	ImageURL json.RawMessage `json:"image_url,omitempty"`
}

type oaTool struct {
	Type     string     `json:"type"`
	Function oaFunction `json:"function"`
}

type oaFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

type oaToolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function oaCall `json:"function"`
}

type oaCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type oaResponseFormat struct {
	Type       string    `json:"type"`
	JSONSchema *oaSchema `json:"json_schema,omitempty"`
}

type oaSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema,omitempty"`
	Strict *bool           `json:"strict,omitempty"`
}

// oaCarried are the top-level fields that Chat carries or routing has read.
var oaCarried = []string{
	"model", "messages", "tools", "tool_choice", "functions", "function_call", "temperature", "top_p",
	"max_tokens", "max_completion_tokens", "stop", "response_format", "seed", "frequency_penalty",
	"presence_penalty", "parallel_tool_calls", "reasoning_effort", "user", "stream", "stream_options",
	// Needs: a value of these that a provider cannot serve does not get there.
	"n", "logprobs", "top_logprobs", "modalities", "audio", "web_search_options",
}
