package wire

import "github.com/sluice-llm/sluice/subjects"

// CanonicalModel is subjects.CanonicalModel: the one way that usage rows, prices
// and routing write a model id.
func CanonicalModel(id string) string { return subjects.CanonicalModel(id) }
