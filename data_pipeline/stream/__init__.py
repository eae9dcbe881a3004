"""The stream of one rank: reading, collating and handing out what the order says."""
