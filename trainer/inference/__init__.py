"""Loading trained weights, and translating lines with them."""
