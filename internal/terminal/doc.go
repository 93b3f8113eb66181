// Package terminal draws what changes while a command runs: a block of lines at the bottom of the terminal that is
// redrawn in place.
//
// The cursor rests on the first character of the block. A terminal that changes its width either cuts the lines that it
// shows or wraps them, so no one can count the rows of a block that was drawn for another width. No terminal moves the
// cursor away from its character, though: what is erased and drawn again from there leaves nothing behind. Lines are cut
// to the width, the block to the height, both read for each drawing.
//
//	live := terminal.NewLive(os.Stderr)
//	defer live.Clear()
//	live.Show("12 of 30 s", "rate 4000/s")
package terminal
