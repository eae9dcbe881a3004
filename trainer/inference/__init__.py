"""Using trained weights: translate, score, average, inspect, export, import."""
