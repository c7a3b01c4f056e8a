"""One step: the factor behind a client's rows, their scales, weights and repetitions."""
