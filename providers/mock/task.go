package mock

import (
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

const (
	prefix = "mock:"

	maxTime   = time.Hour
	maxChunks = 100_000
	maxCount  = 1_000_000_000
)

var settings = []string{"latency", "pace", "chunks", "in", "out", "content", "error", "errors", "retryAfter", "failAfter"}

// behaviourFor finds the behaviour for a task: the configuration's for its
// name, with the settings that the task itself has laid over.
func (p *Provider) behaviourFor(task string) (config.MockBehaviour, error) {
	name, own, has := cutTask(task)
	b, ok := p.behaviour.Tasks[name]
	if !ok {
		b = p.behaviour.Default
	}
	if has {
		if err := parse(own, &b); err != nil {
			return b, err
		}
	}
	if b.FailAfterChunks > 0 && b.Error == "" {
		b.Error = subjects.KindProvider
	}
	return b, nil
}

// cutTask parts a task's name from the settings after it.
func cutTask(task string) (name, own string, has bool) {
	name, own, has = strings.Cut(" "+task, " "+prefix)
	return strings.TrimSpace(name), own, has
}

func taskName(task string) string {
	name, _, _ := cutTask(task)
	return name
}

// parse reads "key=value,key=value" over b.
func parse(own string, b *config.MockBehaviour) error {
	for own != "" {
		var setting string
		setting, own, _ = strings.Cut(own, ",")
		key, value, ok := strings.Cut(setting, "=")
		if !ok {
			return fault("a setting has no value; write key=value, joined by commas")
		}
		if err := set(b, strings.TrimSpace(key), value); err != nil {
			return err
		}
	}
	return nil
}

func set(b *config.MockBehaviour, key, value string) (err error) {
	switch key {
	case "latency":
		b.Latency, err = duration(key, value)
	case "pace":
		b.ChunkDelay, err = duration(key, value)
	case "retryAfter":
		b.RetryAfter, err = duration(key, value)
	case "chunks":
		b.Chunks, err = number[int](key, value, maxChunks)
	case "failAfter":
		b.FailAfterChunks, err = number[int](key, value, maxChunks)
	case "errors":
		b.Errors, err = number[int](key, value, maxCount)
	case "in":
		b.InputTokens, err = number[int64](key, value, maxCount)
	case "out":
		b.OutputTokens, err = number[int64](key, value, maxCount)
	case "content":
		b.Content = value
	case "error":
		if b.Error = subjects.Kind(value); !b.Error.Known() {
			err = fault("error is not a kind of the contract, such as " + string(subjects.KindRateLimited))
		}
	default:
		err = fault("a setting is not known; they are " + strings.Join(settings, ", "))
	}
	return err
}

func duration(key, value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > maxTime {
		return 0, fault(key + " must be a duration from 0s to " + maxTime.String() + ", such as 250ms")
	}
	return d, nil
}

func number[T int | int64](key, value string, high int64) (T, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 || n > high {
		return 0, fault(key + " must be a whole number from 0 to " + strconv.FormatInt(high, 10))
	}
	return T(n), nil
}

func fault(text string) error {
	return subjects.Errorf(subjects.KindValidation, "task: mock settings: %s", text)
}
