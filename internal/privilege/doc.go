// Package privilege says which capabilities (capabilities(7)) each command needs, checks them before a command changes
// anything, and keeps keys out of core dumps.
//
// [Commands] is the one table: commands check themselves against it, docs/privileges.md shows it, and a test runs each
// command with exactly these capabilities, and without each of them.
package privilege
