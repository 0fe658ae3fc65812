"""Layers, attention, graphs and sampling on CUDA.

``layers`` replaces decoder layers of known kinds; ``attention`` brings a step to the device and
launches the kernel of ``kernels`` over it; ``graphs`` replays small steps, captured before;
``sampling`` draws on the device, from masks that ``mask_table`` keeps there.
"""
