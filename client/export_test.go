package client

// Limit sets how many bytes of an answer are read.
func Limit(c *Client, bytes int64) { c.limit = bytes }
