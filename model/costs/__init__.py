"""What a model costs, and what devices are said to do: for plans before a run, and for its figures."""
