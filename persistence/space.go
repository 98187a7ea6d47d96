package persistence

// FreeBytes returns the space that is free for the folder dir, in bytes; known
// is false where the file system does not tell.
func FreeBytes(dir string) (free uint64, known bool) { return freeBytes(dir) }
