"""Shipped recipes, by name: `zeromt pipeline NAME`; each is one YAML file from raw text to a model."""
