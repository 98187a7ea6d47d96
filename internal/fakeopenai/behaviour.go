package fakeopenai

import (
	"net/http"
	"strconv"
	"time"
)

// BeforeFirst means before the first chunk, as the value of CutAfterChunks,
// ErrorAfterChunks or HangAfterChunks.
const BeforeFirst = -1

// Behaviour says what the server does with one request. The zero value answers
// at once with DefaultContent, in the form that the request asks for.
//
// Chunks are counted by content pieces: the role chunk, the finish chunk and the
// usage chunk are not counted.
type Behaviour struct {
	// Gate, when set, holds the request before anything else happens, in place of
	// the server's own gate.
	Gate *Gate
	// Latency passes before the status line is sent. It ends early when the client
	// goes away. 0 or less = none.
	Latency time.Duration
	// FirstByteDelay passes after the headers have been sent and before the first
	// byte of the body. 0 or less = none.
	FirstByteDelay time.Duration
	// Hang sends nothing until the client goes away or the server is closed.
	Hang bool

	// Status is the HTTP status; 0 = 200. With a status other than 200 and no Body
	// the reply is OpenAI's error form for that status.
	Status int
	// Header is added to the reply's headers.
	Header http.Header
	// Body, when not empty, is sent as it is in place of an answer.
	Body string
	// HTMLError sends a gateway's HTML page; the status is Status, or 502.
	HTMLError bool
	// BrokenJSON sends an answer (or, in a stream, a first chunk) whose JSON stops
	// in the middle, in a well-formed HTTP message.
	BrokenJSON bool

	// Content is the answer's text; empty = the server's (see WithContent).
	Content string
	// ToolCalls are answered instead of Content when there are any.
	ToolCalls []ToolCall
	// FinishReason is the answer's finish_reason; empty = "stop", or "tool_calls"
	// when there are tool calls.
	FinishReason string
	// Model is the model id that the answer reports; empty = the requested one.
	Model string
	// Usage is what the answer reports; nil = counts made up from the request's
	// and the answer's length (about four bytes a token).
	Usage *Usage
	// NoUsage leaves the usage out, as some compatible servers do.
	NoUsage bool

	// Chunks is the number of pieces in which a stream sends the content; 0 = 4.
	// Pieces are never split within a character, so there may be fewer.
	Chunks int
	// ChunkDelay passes before every piece but the first. 0 or less = none.
	ChunkDelay time.Duration
	// Comments sends an SSE comment line before every piece.
	Comments bool
	// CutAfterChunks closes the connection after so many pieces; 0 = never. An
	// answer that is not streamed is cut in the middle of its body, or, with
	// BeforeFirst, before its status line.
	CutAfterChunks int
	// ErrorAfterChunks ends a stream with data: {"error": …} after so many pieces;
	// 0 = never. It does nothing to an answer that is not streamed.
	ErrorAfterChunks int
	// HangAfterChunks stops a stream after so many pieces and waits until the
	// client goes away; 0 = never.
	HangAfterChunks int
	// NoDone ends a stream without data: [DONE].
	NoDone bool
}

// ToolCall is one function call of an answer. Arguments is the JSON text that
// the model wrote, sent as a string and not checked.
type ToolCall struct {
	ID, Name, Arguments string
}

// Usage is what an answer reports, in tokens, by OpenAI's way of counting:
// Prompt contains Cached, and Completion contains Reasoning.
type Usage struct {
	Prompt, Completion, Cached, Reasoning int
}

// Script chooses the behaviour for the nth request (from 1, in order of
// arrival). It is called from the request's own goroutine, so it may be called
// concurrently; it must not keep r.Body past its return unless it copies it.
type Script func(n int, r *Request) Behaviour

// Always makes a script that does the same with every request.
func Always(b Behaviour) Script {
	return func(int, *Request) Behaviour { return b }
}

// Sequence makes a script that uses the behaviours in turn and stays with the
// last one. With none, every request gets the zero Behaviour.
func Sequence(bs ...Behaviour) Script {
	return func(n int, _ *Request) Behaviour {
		if len(bs) == 0 {
			return Behaviour{}
		}
		return bs[min(n, len(bs))-1]
	}
}

// RateLimited is OpenAI's 429 for a limit that passes: worth a retry. A positive
// retryAfter is sent as Retry-After (whole seconds, rounded up) and retry-after-ms.
func RateLimited(retryAfter time.Duration) Behaviour {
	b := errorBehaviour(http.StatusTooManyRequests, "Rate limit reached for requests. Please try again later.",
		"requests", "", "rate_limit_exceeded")
	if retryAfter > 0 {
		b.Header = http.Header{
			"Retry-After":    {strconv.FormatInt(int64((retryAfter+time.Second-1)/time.Second), 10)},
			"Retry-After-Ms": {strconv.FormatInt(retryAfter.Milliseconds(), 10)},
		}
	}
	return b
}

// InsufficientQuota is OpenAI's 429 for an account without credit: no retry helps.
func InsufficientQuota() Behaviour {
	return errorBehaviour(http.StatusTooManyRequests,
		"You exceeded your current quota, please check your plan and billing details.",
		"insufficient_quota", "", "insufficient_quota")
}

// ContextLengthExceeded is OpenAI's 400 for a prompt that is too long.
func ContextLengthExceeded() Behaviour {
	return errorBehaviour(http.StatusBadRequest,
		"This model's maximum context length is 8192 tokens. However, your messages resulted in 9412 tokens.",
		"invalid_request_error", "messages", "context_length_exceeded")
}

// InvalidAPIKey is OpenAI's 401.
func InvalidAPIKey() Behaviour {
	return errorBehaviour(http.StatusUnauthorized, "Incorrect API key provided.",
		"invalid_request_error", "", "invalid_api_key")
}

// ContentPolicy is OpenAI's 400 for a prompt that its policy refuses.
func ContentPolicy() Behaviour {
	return errorBehaviour(http.StatusBadRequest, "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
		"invalid_request_error", "", "invalid_prompt")
}

// Overloaded is OpenAI's 503 for a moment of too much load.
func Overloaded() Behaviour {
	return errorBehaviour(http.StatusServiceUnavailable, "The engine is currently overloaded, please try again later.",
		"server_error", "", "overloaded")
}

// ServerError is OpenAI's 500.
func ServerError() Behaviour {
	return Behaviour{Status: http.StatusInternalServerError}
}

func errorBehaviour(status int, message, typ, param, code string) Behaviour {
	return Behaviour{Status: status, Body: string(appendError(nil, message, typ, param, code))}
}
