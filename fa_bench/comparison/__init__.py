"""Two runs side by side: which rows pair, whether time changed beyond noise, and which bytes changed, by tensor.

Everything here reads what a sweep left on disk and decides; it runs nothing and prints nothing.
"""
