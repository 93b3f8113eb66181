// Package turn is weir turn: a TURN gateway for WebRTC media, and the tools around it.
package turn
