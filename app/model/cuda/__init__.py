"""Layers, attention, graphs and sampling on CUDA.

``layers`` replaces decoder layers of known kinds; ``attention`` copies a step to the device and
launches the attention kernels; ``graphs`` replays captured small steps; ``sampling`` draws tokens
on the device, with masks that ``mask_table`` keeps there.
"""
