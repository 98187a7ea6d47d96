// Package repotest holds the rules of the repository itself: which package may
// import which, what each file must and must not contain, and that every
// example in the documents works as it is written.
package repotest
