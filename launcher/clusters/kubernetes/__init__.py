"""`zeromt launch kubernetes`: Indexed Jobs, submitted by kubectl; what their pods run, and what becomes of them."""
