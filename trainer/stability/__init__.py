"""What is settled before the first update: how rows attend, and what fits the memory."""
