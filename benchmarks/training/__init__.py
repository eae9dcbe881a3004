"""How fast training is beside others, and how it grows."""
