"""The order of pairs in the stream, as pure functions of integers."""
