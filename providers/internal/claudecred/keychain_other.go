//go:build !darwin

package claudecred

import "context"

// systemKeychain: the claude program uses a keychain on macOS alone.
func systemKeychain(context.Context) ([]byte, error) { return nil, nil }
