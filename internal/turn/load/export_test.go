package load

const DefaultSilence = defaultSilence
