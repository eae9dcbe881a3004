"""What trains a model: the protocol that the trainer talks to, and DeepSpeed behind it.

`protocol.py` is what the rest of the trainer knows. `deepspeed/` is the one place that imports DeepSpeed. Beside them
stands what an engine of any kind needs: AdamW, the moving average of the weights, memory that ranks share, trials.
"""
