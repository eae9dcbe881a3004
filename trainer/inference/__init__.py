"""What is done with trained weights: translate, score, average, look into, export, import."""
