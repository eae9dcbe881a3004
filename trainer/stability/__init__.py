"""Numbers that go wrong: loss spikes, replicas that drift apart, memory that does not suffice."""
